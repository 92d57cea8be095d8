#include "train/tuner/search_scope.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/log.h>
#include <lockstep/base/rank_status.h>

namespace lockstep::detail {

SearchScope::SearchScope(RunState& state, std::vector<std::shared_ptr<Callback>> callbacks)
    : state_(state), snapshot_(state), callbacks_(std::move(callbacks)) {
  put_aside();
}

// Hooks of the run may be at work, one of which has asked for this: their list is moved, never touched.
void SearchScope::put_aside() {
  kept_ = {.options = state_.options,
           .strategy = state_.strategy,
           .hooks = std::exchange(state_.hooks, {}),
           .callbacks = std::exchange(state_.callbacks, callbacks_),
           .loggers = std::exchange(state_.loggers, {}),
           .profiler = std::exchange(state_.profiler, nullptr),
           .moment = std::exchange(state_.moment, std::nullopt),
           .on_interruption = std::exchange(state_.on_interruption, [] {}),
           .progress = state_.progress,
           .keeps_predictions = std::exchange(state_.keeps_predictions, false)};
  for (const auto& callback : callbacks_) state_.hooks.add(*callback, "Callback", false);
  state_.hooks.add(*state_.module, "Module", false);
  state_.is_trial = true;
  auto& options = state_.options;
  options.min_epochs = options.min_steps = 0;
  options.log_every_n_steps = 0;
  options.val_check_interval = 1.0;
  options.check_val_every_n_epoch = 1;
  options.run.fault = {};
  rewind();
}

void SearchScope::rewind() {
  snapshot_.restore();
  state_.progress = {};
  state_.board = {};
  state_.train_log.reset();
  state_.evaluation_log.reset();
  state_.should_stop = state_.keeps_stop = state_.stops_this_run = false;
  state_.stop_wishes.clear();
  state_.stop_agreed = state_.validation_is_due = false;
}

void SearchScope::renew_strategy() {
  std::vector<std::shared_ptr<torch::nn::Module>> trained;
  for (const auto& one : state_.optimizers)
    if (std::ranges::count(trained, one.module) == 0) trained.push_back(one.module);
  if (trained.empty()) trained.push_back(state_.module);
  for (const auto& module : trained) {
    kept_.strategy->release_module(*module);
    kept_.strategy->setup_module(module);
  }
}

void SearchScope::take_back() {
  state_.is_trial = false;
  state_.options = std::move(kept_.options);
  state_.strategy = std::move(kept_.strategy);
  state_.hooks = std::move(kept_.hooks);
  state_.callbacks = std::move(kept_.callbacks);
  state_.loggers = std::move(kept_.loggers);
  state_.profiler = std::move(kept_.profiler);
  state_.moment = std::move(kept_.moment);
  state_.on_interruption = std::move(kept_.on_interruption);
  state_.keeps_predictions = kept_.keeps_predictions;
  rewind();
  state_.progress = kept_.progress;
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
