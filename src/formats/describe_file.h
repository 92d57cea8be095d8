// What a file of weights holds, for people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/formats/safetensors.h>

namespace lockstep::detail {

/// A line for each tensor and value of a safetensors file or a file of torch.save, and for what is not read of it.
/// @throws IoError when it cannot be read; CheckpointError when it is neither, or damaged
std::string describe_file(const std::filesystem::path& file);

/// "F32 [2, 3]"
std::string kind_text(safetensors::Dtype dtype, const std::vector<std::int64_t>& shape);

}  // namespace lockstep::detail
