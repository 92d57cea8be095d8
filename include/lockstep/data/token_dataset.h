// Text as numbers, in blocks, for language models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/example.h>
#include <lockstep/formats/token_file.h>

namespace lockstep {

/// How TokenDataset cuts.
struct TokenDatasetOptions {
  std::int64_t block_size = 1024;  ///< tokens of a sample
  std::int64_t stride = 0;         ///< from one sample's first token to the next's; 0: block_size
  std::optional<TokenDtype> dtype = std::nullopt;  ///< of files without a header; none: uint16
};

/// Blocks of tokens of files that are mapped into memory: sample i of a file begins with its token i *
/// stride. `data` is int64 [n, block_size]; `target` is the same one token later. A block lies in one file;
/// tokens that fill none are left out.
class LOCKSTEP_API TokenDataset final : public Dataset<Example> {
 public:
  /// @throws ConfigError for block_size < 1, stride < 0; DataError as TokenFile, and when there is no block
  TokenDataset(const std::vector<std::filesystem::path>& files, const TokenDatasetOptions& options);

  std::int64_t size() const override { return ends_.back(); }
  /// @throws DataError naming an index that is out of range
  Example get_batch(std::span<const std::int64_t> indices) const override;

 private:
  void copy_block(std::int64_t index, std::span<std::int64_t> tokens) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> ends_;  // number of blocks of the files up to each
  std::int64_t block_size_;
  std::int64_t stride_;
};

/// A TokenDataset, to be passed on: `ls::token_dataset({"train.bin"}, {.block_size = 256})`.
LOCKSTEP_API DatasetPtr<Example> token_dataset(const std::vector<std::filesystem::path>& files,
                                               const TokenDatasetOptions& options = {});

}  // namespace lockstep
