#include "train/tuner/run_snapshot.h"

#include <lockstep/optim/optim_state.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/random_state.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

RunSnapshot::RunSnapshot(RunState& state)
    : state_(state),
      weights_(module_state(*state.module).clone()),
      precision_(state.precision->state().clone()),
      module_(state.module->state().clone()),
      random_(random_state()) {
  for (const auto& parameter : state.module->parameters()) {
    const auto& gradient = parameter.grad();
    gradients_.emplace_back(parameter, gradient.defined() ? gradient.clone() : gradient);
  }
  for (const auto& module : state.module->modules())
    training_flags_.emplace_back(module.get(), module->is_training());
  for (const auto& one : state.optimizers) {
    optimizers_.push_back(state_of(*one.optimizer).clone());
    schedulers_.push_back(one.scheduler ? state_of(*one.scheduler) : StateTree());
  }
  if (state.data_module) data_module_ = state.data_module->state().clone();
}

void RunSnapshot::restore() const {
  load_module_state(*state_.module, weights_);
  for (const auto& [parameter, gradient] : gradients_)
    parameter.mutable_grad() = gradient.defined() ? gradient.clone() : gradient;
  // Parents come before their children, so a child's own flag is set last and stays.
  for (const auto& [module, training] : training_flags_) module->train(training);
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    const auto& one = state_.optimizers[i];
    load_state(*one.optimizer, optimizers_[i]);
    if (one.scheduler) load_state(*one.scheduler, schedulers_[i]);
  }
  if (!precision_.empty()) state_.precision->load_state(precision_);
  state_.module->load_state(module_);
  if (state_.data_module) state_.data_module->load_state(data_module_);
  load_random_state(random_);
}

}  // namespace lockstep::detail
