// Runs of the loops that leave no trace in the run within which they are made.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/state/state_tree.h>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// A copy of this rank's weights, gradients, optimizers, schedules, precision, random generators and of the
/// state of module and data module. Borrows its arguments.
class RunSnapshot {
 public:
  RunSnapshot(const RunSetup& setup, const RunData& data);

  /// Restores all of it, bit for bit. Not Collective.
  void restore() const;

 private:
  const RunSetup& setup_;
  const RunData& data_;
  StateTree weights_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  // parameters, and copies of their gradients
  std::vector<std::pair<torch::nn::Module*, bool>> training_flags_;
  std::vector<StateTree> optimizers_;
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

  /// Clears what strategies keep between steps: buckets, errors of compression. Call once, after the last
  /// trial of a fit. Collective.
  void renew_strategy();

 private:
  void put_aside();
  void take_back();

  // The parts of the state that trials replace.
  struct Kept {
    TrainerOptions options;
    std::shared_ptr<Strategy> strategy;
    HookList hooks;
    std::vector<std::shared_ptr<Callback>> callbacks;
    std::vector<std::shared_ptr<Logger>> loggers;
    std::shared_ptr<Profiler> profiler;
    std::optional<ResumePoint> resume_point;
    std::function<void()> on_interruption;
    FitProgress progress;
    bool keeps_predictions;
  };

  TrainerState& state_;
  RunSnapshot snapshot_;
  Kept kept_;
  std::vector<std::shared_ptr<Callback>> callbacks_;
};

}  // namespace lockstep::detail
