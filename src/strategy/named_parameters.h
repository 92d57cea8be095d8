// The parameters of a module as an optimizer takes them.
#pragma once

#include <unordered_set>
#include <vector>

#include <lockstep/optim/optimizer.h>
#include <lockstep/torch.h>

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
