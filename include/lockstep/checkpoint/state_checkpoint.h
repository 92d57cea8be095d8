// Any StateTree as a checkpoint: a folder of safetensors files and a manifest.json.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// Writes `state` as `folder`, complete or not at all, as save_checkpoint() does. The tensors of each entry
/// lie in ENTRY.safetensors, those of a model under PyTorch's names; everything else in manifest.json. Not
/// Collective: rank 0 calls it.
/// @throws ConfigError when an entry's name cannot be that of a file; IoError
LOCKSTEP_API void write_state(const std::filesystem::path& folder, const StateTree& state,
                              const CheckpointInfo& info);

/// The tree that write_state() was given, with tensors of its own on the CPU.
/// @throws IoError when a file cannot be read; CheckpointError naming file and path when it is damaged
LOCKSTEP_API StateTree read_state(const std::filesystem::path& folder);

}  // namespace lockstep
