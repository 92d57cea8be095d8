// A module's parameters and buffers as strategies take them: on the device of their rank, and by name for an
// optimizer.
#pragma once

#include <unordered_set>
#include <vector>

#include <c10/core/Device.h>

#include <lockstep/optim/optimizer.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

/// To be called before anything is done to `module`. Not Collective.
/// @throws ConfigError naming `rank` and a parameter or buffer that is neither on the CPU nor on `device`,
/// the
///         device of this rank
void require_placeable(const torch::nn::Module& module, c10::Device device, int rank);

/// Moves parameters, their gradients and buffers to `device`, in place: who holds one of them sees it there.
/// Not Collective.
void place_module(torch::nn::Module& module, c10::Device device);
/// The same for what a sharded engine leaves as it is: buffers, and parameters that are no real numbers.
void place_unsharded(torch::nn::Module& module, c10::Device device);

}  // namespace lockstep::detail

namespace lockstep {

/// All trainable parameters, in the order of registration, under their PyTorch names; a tensor that is
/// registered twice (tied weights) counts once, under its first name.
inline std::vector<NamedParameter> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> parameters;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const auto& tensor = item.value();
    const bool is_new = seen.insert(tensor.unsafeGetTensorImpl()).second;
    if (tensor.requires_grad() && is_new) parameters.push_back({item.key(), tensor});
  }
  return parameters;
}

}  // namespace lockstep
