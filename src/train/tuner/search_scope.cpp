#include "train/tuner/search_scope.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/log.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/optim/scheduler.h>
#include <lockstep/state/module_state.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

// What a strategy that shards keeps: the model itself shows roundings of it.
StateTree weights_of(const RunSetup& setup) {
  const auto shards = setup.strategy->wanted_state(*setup.module);
  return (shards.empty() ? module_state(*setup.module) : shards).clone();
}

}  // namespace

RunSnapshot::RunSnapshot(RunSetup& setup, const RunData& data)
    : setup_(setup),
      data_(data),
      weights_(weights_of(setup)),
      precision_(setup.precision->state().clone()),
      module_(setup.module->state().clone()),
      random_(random_state(setup.strategy->root_device())) {
  for (const auto& parameter : setup.module->parameters()) {
    const auto& gradient = parameter.grad();
    gradients_.emplace_back(parameter, gradient.defined() ? gradient.clone() : gradient);
    requires_grad_.emplace_back(parameter, parameter.requires_grad());
  }
  for (const auto& module : setup.module->modules())
    training_flags_.emplace_back(module.get(), module->is_training());
  for (const auto& one : setup.optimizers) {
    optimizers_.push_back(state_of(*one.optimizer).clone());
    schedules_.push_back(one.lr_scheduler);
    schedulers_.push_back(one.scheduler ? state_of(*one.scheduler) : StateTree());
  }
  if (data.module) data_module_ = data.module->state().clone();
}

void RunSnapshot::restore() const {
  setup_.strategy->load_module(*setup_.module, weights_, /*strict=*/true);
  for (const auto& [parameter, gradient] : gradients_)
    parameter.mutable_grad() = gradient.defined() ? gradient.clone() : gradient;
  for (const auto& [parameter, requires_grad] : requires_grad_) parameter.set_requires_grad(requires_grad);
  // Parents come before their children, so a child's own flag is set last and stays.
  for (const auto& [module, training] : training_flags_) module->train(training);
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    auto& one = setup_.optimizers[i];
    one.lr_scheduler = schedules_[i];
    // A hook may have put another one in its place.
    const bool is_scheduled = one.scheduler && one.lr_scheduler;
    one.scheduler =
        is_scheduled ? std::make_unique<Scheduler>(one.lr_scheduler->scheduler, *one.optimizer) : nullptr;
    load_state(*one.optimizer, optimizers_[i]);
    if (one.scheduler) load_state(*one.scheduler, schedulers_[i]);
  }
  if (!precision_.empty()) setup_.precision->load_state(precision_);
  setup_.module->load_state(module_);
  if (data_.module) data_.module->load_state(data_module_);
  load_random_state(random_, setup_.strategy->root_device());
}

SearchScope::SearchScope(TrainerState& state, std::vector<std::shared_ptr<Callback>> callbacks)
    : state_(state), snapshot_(state.setup, state.data), callbacks_(std::move(callbacks)) {
  put_aside();
}

// A hook of the run may have asked for this search, so its hook list is moved and not changed.
void SearchScope::put_aside() {
  replaced_ = {.options = state_.setup.options,
               .accumulation = state_.setup.accumulation,
               .strategy = state_.setup.strategy,
               .hooks = std::exchange(state_.hooks, {}),
               .callbacks = std::exchange(state_.setup.callbacks, callbacks_),
               .loggers = std::exchange(state_.log.loggers, {}),
               .profiler = std::exchange(state_.setup.profiler, nullptr),
               .resume_point = std::exchange(state_.checkpoints.resume_point, std::nullopt),
               .on_interruption = std::exchange(state_.checkpoints.on_interruption, [] {}),
               .after_cut_epoch = std::exchange(state_.checkpoints.after_cut_epoch, [] {}),
               .progress = state_.progress,
               .keeps_predictions = std::exchange(state_.predictions.are_kept, false)};
  for (const auto& callback : callbacks_) state_.hooks.add(*callback, "Callback", false);
  state_.hooks.add(*state_.setup.module, "Module", false);
  state_.checkpoints.are_off = true;
  auto& options = state_.setup.options;
  options.min_epochs = options.min_steps = 0;
  options.log_every_n_steps = 0;
  options.val_check_interval = 1.0;
  options.check_val_every_n_epoch = 1;
  options.run.fault = {};
  options.cuda_graphs = false;  // trials are short, and vote on the host
  rewind();
}

void SearchScope::rewind() {
  snapshot_.restore();
  state_.setup.accumulation.next.reset();
  state_.progress = {};
  state_.log.board = {};
  state_.log.train.reset();
  state_.log.evaluation.reset();
  state_.stop = {};
  state_.status.validation_is_due = false;
}

void SearchScope::renew_strategy() {
  std::vector<std::shared_ptr<torch::nn::Module>> trained;
  for (const auto& one : state_.setup.optimizers)
    if (std::ranges::count(trained, one.module) == 0) trained.push_back(one.module);
  if (trained.empty()) trained.push_back(state_.setup.module);
  for (const auto& module : trained) {
    replaced_.strategy->release_module(*module);
    replaced_.strategy->setup_module(module);
  }
}

void SearchScope::take_back() {
  state_.checkpoints.are_off = false;
  state_.setup.options = std::move(replaced_.options);
  state_.setup.strategy = std::move(replaced_.strategy);
  state_.hooks = std::move(replaced_.hooks);
  state_.setup.callbacks = std::move(replaced_.callbacks);
  state_.setup.before_exchange = nullptr;
  state_.log.loggers = std::move(replaced_.loggers);
  state_.setup.profiler = std::move(replaced_.profiler);
  state_.checkpoints.resume_point = std::move(replaced_.resume_point);
  state_.checkpoints.on_interruption = std::move(replaced_.on_interruption);
  state_.checkpoints.after_cut_epoch = std::move(replaced_.after_cut_epoch);
  state_.predictions.are_kept = replaced_.keeps_predictions;
  rewind();
  state_.setup.accumulation = std::move(replaced_.accumulation);
  state_.progress = replaced_.progress;
  rank_status().optimizer_step.store(static_cast<std::uint64_t>(state_.progress.global_step),
                                     std::memory_order_relaxed);
}

SearchScope::~SearchScope() {
  try {
    take_back();
  } catch (const std::exception& error) {
    log_error(std::string("the state of before a search could not be restored: ") + error.what());
  }
}

}  // namespace lockstep::detail
