#include "parallel/ddp/power_sgd_state.h"

namespace lockstep::detail {

PowerSgdMemory& PowerSgdState::memory_of(const at::Tensor& parameter, at::IntArrayRef error_sizes,
                                         at::IntArrayRef q_sizes) {
  auto& memory = memories_[parameter.unsafeGetTensorImpl()];
  memory.parameter = parameter;
  const auto fits = [&](const at::Tensor& tensor, at::IntArrayRef sizes) {
    return !memory.is_open && tensor.defined() && tensor.sizes() == sizes;
  };
  if (!fits(memory.error, error_sizes)) memory.error.reset();
  if (!fits(memory.q, q_sizes)) memory.q.reset();
  memory.is_open = false;
  return memory;
}

StateTree PowerSgdState::state(const std::vector<NamedTensor>& named) const {
  StateTree parameters;
  for (const auto& [name, tensor] : named) {
    const auto found = memories_.find(tensor.unsafeGetTensorImpl());
    if (found == memories_.end() || found->second.is_open) continue;
    StateTree memory;
    if (found->second.error.defined()) memory.set("error", found->second.error.clone());
    if (found->second.q.defined()) memory.set("q", found->second.q.clone());
    parameters.set(name, std::move(memory));
  }
  StateTree state;
  state.set("iteration", iteration);
  state.set("parameters", std::move(parameters));
  return state;
}

void PowerSgdState::load_state(const StateTree& state, const std::vector<NamedTensor>& named) {
  const auto& parameters = state.get<StateTree>("parameters");
  std::unordered_map<const at::TensorImpl*, PowerSgdMemory> memories;
  for (const auto& [name, tensor] : named) {
    if (!parameters.contains(name)) continue;
    const auto& saved = parameters.get<StateTree>(name);
    const auto copy = [&](const char* key) {
      return saved.contains(key) ? saved.get<at::Tensor>(key).clone() : at::Tensor();
    };
    memories[tensor.unsafeGetTensorImpl()] = {.parameter = tensor, .error = copy("error"), .q = copy("q")};
  }
  iteration = state.get<std::int64_t>("iteration");
  memories_ = std::move(memories);
}

}  // namespace lockstep::detail
