// The names that Hugging Face gives to files of weights, and its index of those that are cut into several.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::detail {

inline constexpr auto kSafetensors = "model.safetensors";
inline constexpr auto kSafetensorsIndex = "model.safetensors.index.json";

/// The file beside `index` in which each tensor lies, by the tensor's name. Files' names end in `ending`.
/// @throws IoError when it cannot be read; CheckpointError when it is no index, or names no file beside it
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index, const std::string& ending);

}  // namespace lockstep::detail
