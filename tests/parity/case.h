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

  /// @throws DataError naming the field, its value and what is known
  [[noreturn]] static void refuse(const std::string& field, const nlohmann::json& value,
                                  const std::string& expected);

  std::filesystem::path data_file() const;
  bool is_deepspeed() const;
  ls::Optimizers optimizers() const;
  ls::TrainerOptions trainer() const;
  void set_steps(ls::TrainerOptions& options) const;

  /// The optimizer's group that the case's group i begins with: the case lists names, and each name is a
  /// group of its own. One entry when the case has no groups.
  std::vector<std::size_t> first_group_of_each() const;

  /// @throws DataError unless they have the element type that the precision computes in
  void check_logits(const at::Tensor& logits) const;
};

}  // namespace parity
