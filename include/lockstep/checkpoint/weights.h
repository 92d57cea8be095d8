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

/// What Module::state() of rank 0 has given to the Trainer's checkpoint at `path`; empty for anything else.
/// @throws IoError, CheckpointError naming a damaged file
LOCKSTEP_API StateTree module_state_in(const std::filesystem::path& path);

/// A model of `arguments` with the weights in `path`, a `Model` where that is a holder of TORCH_MODULE, else
/// a `std::shared_ptr<Model>`; of any format that read_weights() reads: checkpoints of ours and DeepSpeed,
/// .ckpt, .pt, safetensors, Hugging Face. What Lightning's `Model.load_from_checkpoint` does; a model whose
/// `strict_loading()` is false takes the tensors that both have, and the others are said in a warning. A
/// ls::Module gets what rank 0's state() has kept in a Trainer's checkpoint. What configure_model() or
/// setup() builds is not there yet: give the checkpoint of such a model to the Trainer, `trainer.test(model,
/// data, path)`. Not Collective.
/// @throws IoError, CheckpointError as load_weights()
template <class Model, class... Arguments>
auto load_from_checkpoint(const std::filesystem::path& path, Arguments&&... arguments) {
  if constexpr (requires { typename Model::ContainedType; }) {
    return Model(
        load_from_checkpoint<typename Model::ContainedType>(path, std::forward<Arguments>(arguments)...));
  } else {
    auto model = std::make_shared<Model>(std::forward<Arguments>(arguments)...);
    bool strict = true;
    if constexpr (requires { model->strict_loading(); }) strict = model->strict_loading();
    warn_of(load_weights(path, *model, strict), path.string());
    if constexpr (requires(StateTree state) { state = model->state(), model->load_state(state); }) {
      if (const auto state = module_state_in(path); !state.empty()) model->load_state(state);
    }
    return model;
  }
}

}  // namespace lockstep
