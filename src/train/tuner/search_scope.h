// A run of the loops aside from the run that is under way, which goes on as if it had not been.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/state/state_tree.h>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// This rank's copy of weights, gradients, optimizer, schedule, precision, random generators and of what
/// module and data module keep. Borrows its arguments.
class RunSnapshot {
 public:
  RunSnapshot(const RunSetup& setup, const RunData& data);

  /// Puts all of it back, to the bit. Not Collective.
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

/// While one exists, `state` is that of a run without loggers, profiler, checkpoints and callbacks but for
/// `callbacks`. Afterwards all is as it was, but for loaders. Put the options of the trials into
/// state.setup.options. Possible where no batch of the run has been asked for yet.
class SearchScope {
 public:
  SearchScope(TrainerState& state, std::vector<std::shared_ptr<Callback>> callbacks);
  ~SearchScope();
  SearchScope(const SearchScope&) = delete;
  SearchScope& operator=(const SearchScope&) = delete;

  /// Puts the run back to where the scope began, for another trial. Not Collective.
  void rewind();

  /// Forgets what strategies remember of steps: buckets, errors of compression. Once, behind the last trial
  /// of a fit. Collective.
  void renew_strategy();

 private:
  void put_aside();
  void take_back();

  // What trials replace.
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
