// A model with the weights of a checkpoint, in one call.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include <lockstep/checkpoint/weights.h>

namespace lockstep {

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
