#include "train/tuner/run_snapshot.h"

#include <lockstep/optim/optim_state.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/random_state.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

RunSnapshot::RunSnapshot(const RunSetup& setup, const RunData& data)
    : setup_(setup),
      data_(data),
      weights_(module_state(*setup.module).clone()),
      precision_(setup.precision->state().clone()),
      module_(setup.module->state().clone()),
      random_(random_state()) {
  for (const auto& parameter : setup.module->parameters()) {
    const auto& gradient = parameter.grad();
    gradients_.emplace_back(parameter, gradient.defined() ? gradient.clone() : gradient);
  }
  for (const auto& module : setup.module->modules())
    training_flags_.emplace_back(module.get(), module->is_training());
  for (const auto& one : setup.optimizers) {
    optimizers_.push_back(state_of(*one.optimizer).clone());
    schedulers_.push_back(one.scheduler ? state_of(*one.scheduler) : StateTree());
  }
  if (data.module) data_module_ = data.module->state().clone();
}

void RunSnapshot::restore() const {
  load_module_state(*setup_.module, weights_);
  for (const auto& [parameter, gradient] : gradients_)
    parameter.mutable_grad() = gradient.defined() ? gradient.clone() : gradient;
  // Parents come before their children, so a child's own flag is set last and stays.
  for (const auto& [module, training] : training_flags_) module->train(training);
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    const auto& one = setup_.optimizers[i];
    load_state(*one.optimizer, optimizers_[i]);
    if (one.scheduler) load_state(*one.scheduler, schedulers_[i]);
  }
  if (!precision_.empty()) setup_.precision->load_state(precision_);
  setup_.module->load_state(module_);
  if (data_.module) data_.module->load_state(data_module_);
  load_random_state(random_);
}

}  // namespace lockstep::detail
