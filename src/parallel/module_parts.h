// A module and all that is inside of it.
#pragma once

#include <unordered_set>

#include <lockstep/torch.h>

namespace lockstep::detail {

/// `module` itself and its children of any depth.
inline std::unordered_set<const torch::nn::Module*> parts_of(const torch::nn::Module& module) {
  std::unordered_set<const torch::nn::Module*> parts{&module};
  for (const auto& part : module.modules(/*include_self=*/false)) parts.insert(part.get());
  return parts;
}

}  // namespace lockstep::detail
