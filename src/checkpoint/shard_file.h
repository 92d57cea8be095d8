// One safetensors file of a checkpoint, as a rank writes it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/state_json.h"
#include "formats/checkpoint_manifest.h"

namespace lockstep::detail {

/// Writes `leaves` to `folder` as the file `file`, durably: whole tensors in their shape, others as the run
/// that they are. Names within the file are those paths without their first `cut` characters, or "tensor"
/// where nothing is left. Adds what it wrote to `manifest`. Blocking.
/// @throws IoError; CheckpointError naming a tensor that the file cannot hold
void write_shard_file(const std::filesystem::path& folder, const std::string& file,
                      const TensorLeaves& leaves, std::size_t cut, Manifest& manifest);

}  // namespace lockstep::detail
