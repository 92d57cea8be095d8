// The Tuner's searches, and the trial runs that they make, which leave no trace in the run within which they
// are made.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/state/state_tree.h>
#include <lockstep/train/tuner_options.h>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// Finds the largest batch size that fits, by runs of the current stage, and sets it. Returns none, with a
/// warning, in a fast_dev_run. Everything but the loaders is restored. Collective.
/// @throws ConfigError without a data module or a way to set the size, and when nothing fits
std::optional<std::int64_t> find_batch_size(TrainerState& state, const ScaleBatchSizeOptions& options);

void refuse_closures(const RunSetup& setup);

/// Refuses a search of fit, called `name`, without training batches. @throws ConfigError
void require_training(const RunSetup& setup, const RunData& data, const char* name);

/// Checks the options of a search, called `name`. Refuses optimizers that evaluate the loss themselves, since
/// their state grows with their steps and ranks with different gradients would diverge, and data without a
/// batch. @throws ConfigError
template <class Options>
void check_search(const RunSetup& setup, const RunData& data, const char* name, Options options) {
  OptionTree tree;
  tree.add(name, options);
  tree.validate();
  refuse_closures(setup);
  require_training(setup, data, name);
}

/// Sweeps the learning rates; with update_attr the optimizer then uses the suggested one. Returns none, with
/// a warning, in a fast_dev_run. Everything else is restored. Collective.
std::optional<LrFindResult> find_learning_rate(TrainerState& state, const LrFindOptions& options);

/// A copy of this rank's weights, gradients, what is frozen, optimizers, schedules, precision, random
/// generators and of the state of module and data module. Borrows its arguments.
class RunSnapshot {
 public:
  RunSnapshot(RunSetup& setup, const RunData& data);

  /// Restores all of it, bit for bit. Not Collective.
  void restore() const;

 private:
  RunSetup& setup_;
  const RunData& data_;
  StateTree weights_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  // parameters, and copies of their gradients
  std::vector<std::pair<torch::nn::Module*, bool>> training_flags_;
  std::vector<std::pair<at::Tensor, bool>> requires_grad_;
  std::vector<StateTree> optimizers_;
  std::vector<std::optional<LRScheduler>> schedules_;
  std::vector<StateTree> schedulers_;  // as many; empty where an optimizer has none
  StateTree precision_;
  StateTree module_;
  StateTree data_module_;
  StateTree random_;
};

/// While a scope exists, `state` has no loggers, profiler, checkpoints or callbacks other than `callbacks`.
/// Its end restores everything but the loaders. Set the options of the trials in state.setup.options.
/// Possible before the first batch of the run.
class SearchScope {
 public:
  SearchScope(TrainerState& state, std::vector<std::shared_ptr<Callback>> callbacks);
  ~SearchScope();
  SearchScope(const SearchScope&) = delete;
  SearchScope& operator=(const SearchScope&) = delete;

  /// Restores the state at the begin of the scope, for another trial. Not Collective.
  void rewind();

  /// Clears the state of strategies between steps: buckets, errors of compression. Call once, after the last
  /// trial of a fit. Collective.
  void renew_strategy();

 private:
  void put_aside();
  void take_back();

  // The parts of the state that trials replace.
  struct ReplacedParts {
    TrainerOptions options;
    AccumulationChanges accumulation;
    std::shared_ptr<Strategy> strategy;
    HookList hooks;
    std::vector<std::shared_ptr<Callback>> callbacks;
    std::vector<std::shared_ptr<Logger>> loggers;
    std::shared_ptr<Profiler> profiler;
    std::optional<ResumePoint> resume_point;
    std::function<void()> on_interruption;
    std::function<void()> after_cut_epoch;
    FitProgress progress;
    bool keeps_predictions;
  };

  TrainerState& state_;
  RunSnapshot snapshot_;
  ReplacedParts replaced_;
  std::vector<std::shared_ptr<Callback>> callbacks_;
};

}  // namespace lockstep::detail
