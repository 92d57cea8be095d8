// A model's weights as one safetensors file, under PyTorch's names, and a model with the weights of a
// checkpoint. Python reads the file with safetensors.torch.load_file.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

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

/// `std::make_shared<Model>(arguments...)` with the weights in `path`, of any format that read_weights()
/// reads: checkpoints of ours and DeepSpeed, .ckpt, .pt, safetensors, Hugging Face. What Lightning's
/// `Model.load_from_checkpoint` does; a model whose `strict_loading()` is false takes the tensors that both
/// have, and the others are said in a warning. Not Collective.
/// @throws IoError, CheckpointError as load_weights()
template <class Model, class... Arguments>
std::shared_ptr<Model> load_from_checkpoint(const std::filesystem::path& path, Arguments&&... arguments) {
  auto model = std::make_shared<Model>(std::forward<Arguments>(arguments)...);
  bool strict = true;
  if constexpr (requires { model->strict_loading(); }) strict = model->strict_loading();
  warn_of(load_weights(path, *model, strict), path.string());
  return model;
}

}  // namespace lockstep
