// Text from files, as samples of a language model.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lm {

/// The files at `paths` one after the other, those of a folder and the folders in it by their names; a file
/// with several names counts once.
/// @throws ConfigError for a path that is not there; IoError for a file that cannot be read
std::string read_text(const std::vector<std::filesystem::path>& paths);

/// Sample i: the tokens from i * context on, `context` of them, and as target the same one token later.
class Blocks final : public lockstep::Dataset<lockstep::Example> {
 public:
  /// @throws DataError unless there are tokens for two samples, one of them for validation
  Blocks(std::vector<std::int32_t> tokens, std::int64_t context);

  std::int64_t size() const override;
  lockstep::Example get_batch(std::span<const std::int64_t> indices) const override;

 private:
  std::vector<std::int32_t> tokens_;
  std::int64_t context_;
};

}  // namespace lm
