#include <lockstep/state/module_state.h>

#include <lockstep/torch.h>

#include "state/module_tensors.h"

namespace lockstep {
namespace {

detail::TensorKinds kinds_in(const StateTree& state) {
  detail::TensorKinds kinds;
  for (const auto& [name, value] : state.entries()) kinds.emplace(name, value.describe());
  return kinds;
}

}  // namespace

StateTree module_state(const torch::nn::Module& module) {
  StateTree state;
  for (const auto& parameter : module.named_parameters()) {
    state.set(parameter.key(), parameter.value().detach());
  }
  for (const auto& buffer : module.named_buffers()) {
    if (buffer.value().defined()) state.set(buffer.key(), buffer.value().detach());
  }
  return state;
}

IncompatibleKeys load_module_state(torch::nn::Module& module, const StateTree& state, bool strict) {
  const auto own = module_state(module);
  auto keys = detail::match_tensors(kinds_in(own), kinds_in(state), strict, "the state",
                                    state.path().empty() ? "" : "state " + state.path());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own.entries()) {
    if (state.contains(name)) std::get<at::Tensor>(tensor).copy_(state.get<at::Tensor>(name));
  }
  return keys;
}

std::span<const OptionName<StateDictType>> option_names(StateDictType) {
  static constexpr OptionName<StateDictType> kNames[] = {{"full", StateDictType::kFull},
                                                         {"sharded", StateDictType::kSharded}};
  return kNames;
}

}  // namespace lockstep
