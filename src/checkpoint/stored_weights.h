// The weights in a file or folder of any format that is known, each read when it is asked for.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/formats/safetensors.h>
#include <lockstep/state/incompatible_keys.h>

#include "formats/stored_elements.h"

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

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

/// Those of a safetensors file or a folder of Hugging Face.
StoredWeights stored_safetensors(const std::filesystem::path& path);

/// As lockstep::load_weights(), but hands each tensor of `module` that `path` has to `put`, with what reads
/// it.
IncompatibleKeys load_weights(const std::filesystem::path& path, const torch::nn::Module& module, bool strict,
                              const std::function<void(const at::Tensor&, const StoredTensor&)>& put);

}  // namespace lockstep::detail
