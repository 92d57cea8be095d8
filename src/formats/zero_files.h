// The files of a checkpoint of DeepSpeed, FOLDER/TAG/:
//
//   mp_rank_00_model_states.pt                          stages 0 to 2: the model, from rank 0
//   zero_pp_rank_R_mp_rank_00_model_states.pt           stage 3: from every rank R
//   [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt    stages 1 to 3: the optimizer, from every rank R
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "formats/torch_file.h"

namespace lockstep::detail {

/// Whether `folder` has files of such a checkpoint.
LOCKSTEP_API bool has_zero_files(const std::filesystem::path& folder);

struct ZeroFiles {
  std::filesystem::path folder;
  int stage = 0;
  std::vector<OpenedTorchFile> models;      ///< by rank; of stages 0 to 2 that of rank 0 alone
  std::vector<OpenedTorchFile> optimizers;  ///< by rank; at stage 0 none, or of bfloat16
};

/// Opens all of them; the bytes are compared with their checksums.
/// @throws IoError; CheckpointError naming the file that is missing, damaged, left over from another
///   checkpoint or of another kind, such as one of tensor parallelism
LOCKSTEP_API ZeroFiles open_zero_files(const std::filesystem::path& folder);

/// What is under `key` of a dict of `file`. @throws CheckpointError naming file and key unless it is a T
template <class T>
const T& held_in(const OpenedTorchFile& file, const pickle::Dict& dict, const char* key);

/// The dict of a rank's optimizer file in which everything is that ZeRO keeps.
/// @throws CheckpointError naming the file when there is none
LOCKSTEP_API const pickle::Dict& zero_state(const OpenedTorchFile& optimizer);

[[noreturn]] LOCKSTEP_API void refuse_key(const OpenedTorchFile& file, const std::string& key,
                                          const std::string& expected, const std::string& got);

template <class T>
const T& held_in(const OpenedTorchFile& file, const pickle::Dict& dict, const char* key) {
  const auto* value = dict.find(key);
  const auto* held = value == nullptr ? nullptr : value->as<T>();
  if (held == nullptr)
    refuse_key(file, key, std::string(pickle::Value(T{}).kind()),
               value == nullptr ? "none" : std::string(value->kind()));
  return *held;
}

}  // namespace lockstep::detail
