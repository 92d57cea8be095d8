#include <lockstep/checkpoint/weights.h>

#include <vector>

#include <lockstep/formats/safetensors.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "checkpoint/stored_weights.h"
#include "state/tensor_match.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using detail::StoredWeights;
using detail::TensorKinds;

TensorKinds kinds_of(const StoredWeights& weights) {
  TensorKinds kinds;
  for (const auto& [name, stored] : weights)
    kinds.emplace(name, detail::tensor_kind(scalar_type(stored.dtype), stored.shape));
  return kinds;
}

TensorKinds kinds_of(const NamedTensors& tensors) {
  TensorKinds kinds;
  for (const auto& [name, tensor] : tensors)
    kinds.emplace(name, detail::tensor_kind(tensor.scalar_type(), tensor.sizes()));
  return kinds;
}

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors tensors;
  const auto state = module_state(module);
  for (const auto& [name, tensor] : state.entries()) tensors.emplace(name, std::get<at::Tensor>(tensor));
  return tensors;
}

void write_weights(const fs::path& file, const NamedTensors& tensors) {
  std::vector<at::Tensor> contiguous;  // keeps the bytes alive while they are written
  std::vector<safetensors::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    contiguous.push_back(stored_form(tensor));
    views.push_back(view_of(name, contiguous.back()));
  }
  safetensors::write(file, views, {{"format", "pt"}});
}

IncompatibleKeys detail::load_weights(
    const fs::path& path, const torch::nn::Module& module, bool strict,
    const std::function<void(const at::Tensor&, const StoredTensor&)>& put) {
  const auto weights = stored_weights(path);
  const auto targets = named_tensors(module);
  auto keys = match_tensors(kinds_of(targets), kinds_of(weights), strict, "weights in " + path.string());
  for (const auto& [name, tensor] : targets) {
    if (const auto stored = weights.find(name); stored != weights.end()) put(tensor, stored->second);
  }
  return keys;
}

IncompatibleKeys load_weights(const fs::path& path, torch::nn::Module& module, bool strict) {
  const torch::NoGradGuard no_grad;
  return detail::load_weights(path, module, strict, [](const at::Tensor& tensor, const auto& stored) {
    tensor.copy_(stored.read());
  });
}

}  // namespace lockstep
