// The parameters of a module as an optimizer takes them.
#pragma once

#include <algorithm>
#include <vector>

#include <lockstep/optim/optimizer.h>
#include <lockstep/torch.h>

namespace lockstep {

/// All trainable parameters, in the order of registration, under their PyTorch names; a tensor that is
/// registered twice (tied weights) counts once, under its first name.
inline std::vector<NamedParameter> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> parameters;
  for (const auto& item : module.named_parameters()) {
    const auto& tensor = item.value();
    const auto same = [&](const NamedParameter& other) { return other.tensor.is_same(tensor); };
    if (tensor.requires_grad() && std::ranges::none_of(parameters, same))
      parameters.push_back({item.key(), tensor});
  }
  return parameters;
}

}  // namespace lockstep
