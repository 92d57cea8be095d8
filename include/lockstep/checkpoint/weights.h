// A model's weights as one safetensors file, under PyTorch's names: Python reads it with
// safetensors.torch.load_file.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/state/module_state.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Name -> tensor, as in a PyTorch state_dict.
using NamedTensors = std::map<std::string, at::Tensor>;

/// All parameters and buffers of `module`; the tensors alias the module's.
LOCKSTEP_API NamedTensors named_tensors(const torch::nn::Module& module);

/// Writes `tensors` to `file`, completely or not at all. @throws IoError
LOCKSTEP_API void write_weights(const std::filesystem::path& file, const NamedTensors& tensors);

/// Copies the tensors in `path`, of any format that read_weights() reads, into the parameters and buffers of
/// `module`, in place. Unless it is `strict`, names that only one of them has are no error; they are
/// returned.
/// @throws IoError; CheckpointError naming file and tensors that are missing, extra, or of another shape or
///   dtype; nothing is copied then
LOCKSTEP_API IncompatibleKeys load_weights(const std::filesystem::path& path, torch::nn::Module& module,
                                           bool strict = true);

}  // namespace lockstep
