// A checkpoint on disk: a folder NAME.ckpt with model.safetensors and manifest.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/checkpoint/weights.h>

namespace lockstep {

/// Where in training a checkpoint was taken.
struct CheckpointInfo {
  std::int64_t epoch = 0;        ///< completed epochs
  std::int64_t global_step = 0;  ///< optimizer steps
  int world_size = 1;
  std::string strategy;
};

/// Writes `folder` under a temporary name beside it, makes it durable and renames it: a folder of
/// that name is complete or the one that was there before (on file systems without an atomic exchange,
/// such as NFS, the older one is for a moment called .NAME.draft.old). Not Collective: rank 0 calls it.
/// @throws IoError, also when something that is no folder has that name
LOCKSTEP_API void save_checkpoint(const std::filesystem::path& folder, const NamedTensors& weights,
                                  const CheckpointInfo& info);

}  // namespace lockstep
