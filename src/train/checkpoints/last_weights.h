// The file that --save_weights names: what it is called says what is written.
#pragma once

#include <filesystem>

#include <lockstep/checkpoint/weights.h>

namespace lockstep::detail {

/// For before a run: whether the weights can be written to `file`, where it is named.
/// @throws ConfigError for a file that cannot be made, or whose name is that of a format that is not written
void check_last_weights(const std::filesystem::path& file);

/// Writes `weights` as torch.save does to `.pt`, `.pth` and `.bin`, else as safetensors.
/// @throws IoError; CheckpointError for what the format cannot hold
void write_last_weights(const std::filesystem::path& file, const NamedTensors& weights);

}  // namespace lockstep::detail
