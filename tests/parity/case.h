// A golden case as data: the parts of case.json that parity_case understands.
#pragma once

#include <lockstep/lockstep.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace parity {

namespace ls = lockstep;

/// case.json. Format: tests/parity/README.md.
struct Case {
  std::filesystem::path folder;
  nlohmann::json json;

  /// @throws DataError when it cannot be read or asks for what parity_case does not know
  static Case read(const std::filesystem::path& folder);

  std::filesystem::path data_file() const;
  ls::Optimizers optimizers() const;
  ls::TrainerOptions trainer() const;
};

}  // namespace parity
