// Inspecting and comparing checkpoints, and writing their tensors to other files, without LibTorch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/formats/checkpoint_info.h>

namespace lockstep {

/// A description of the checkpoint in `folder` for users: a line for each file, tensor and value. `folder`
/// may also be a safetensors file, or a file of torch.save, of which the description also names what is not
/// read.
/// @throws IoError when it cannot be read; CheckpointError when it is damaged
LOCKSTEP_API std::string describe_checkpoint(const std::filesystem::path& folder,
                                             Verify verify = Verify::kAll);

/// How two checkpoints or safetensors files differ, a line for each tensor or value, as `-` and `+` of a
/// diff. Empty when their contents are equal, whatever the ranks that wrote them.
/// @throws as describe_checkpoint()
LOCKSTEP_API std::vector<std::string> compare_checkpoints(const std::filesystem::path& before,
                                                          const std::filesystem::path& after);

/// Writes all tensors of `entry`, such as "model", whole, to the safetensors file `file`. Blocking.
/// @throws as describe_checkpoint(); CheckpointError when there is no such entry; ConfigError when the name
/// of
///   `file` does not end with .safetensors
LOCKSTEP_API void consolidate_checkpoint(const std::filesystem::path& folder, const std::string& entry,
                                         const std::filesystem::path& file);

}  // namespace lockstep
