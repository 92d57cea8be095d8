// The weights in a file or folder of any known format, each read when it is needed.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/formats/safetensors.h>

#include "formats/stored_elements.h"

namespace lockstep::detail {

// The names that Hugging Face gives to files of weights, and its index of weights in several files.

inline constexpr auto kSafetensors = "model.safetensors";
inline constexpr auto kSafetensorsIndex = "model.safetensors.index.json";

/// The file beside `index` in which each tensor lies, by the tensor's name. Files' names end in `ending`.
/// @throws IoError when it cannot be read; CheckpointError when it is no index, or names no file beside it
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index,
                                                   const std::string& ending);

struct StoredTensor {
  safetensors::Dtype dtype;
  std::vector<std::int64_t> shape;
  std::function<at::Tensor()> read;  ///< on the CPU, no part of the file; views of one storage share a copy
};

using StoredWeights = std::map<std::string, StoredTensor>;

/// The weights in `path`, whose content tells what it is: a safetensors file, a checkpoint, one of
/// DeepSpeed, a folder of Hugging Face, or a state_dict by torch.save, also one inside a checkpoint of
/// Lightning.
/// @throws IoError when it cannot be read; CheckpointError naming file and tensor
StoredWeights stored_weights(const std::filesystem::path& path);

/// A tensor of its own with these elements, in float32 as as_float32() says.
at::Tensor float32_tensor(const StoredElements& elements, const std::vector<std::int64_t>& shape);

/// The weights in a safetensors file or a folder of Hugging Face.
StoredWeights stored_safetensors(const std::filesystem::path& path);

}  // namespace lockstep::detail
