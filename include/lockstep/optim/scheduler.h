// Steps an optimizer's learning rates along a schedule.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/scheduler_options.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// What a checkpoint must hold to resume a Scheduler.
struct SchedulerState {
  std::int64_t last_step = 0;         ///< k
  std::vector<double> base_lrs = {};  ///< by group
  std::vector<double> last_lrs = {};  ///< by group
  double best = 0.0;                  ///< ReduceLROnPlateau: best value so far
  std::int64_t bad_steps = 0;         ///< ReduceLROnPlateau: steps since then
  std::int64_t cooldown_left = 0;     ///< ReduceLROnPlateau: steps in which bad values do not count
};

/// Sets lr (and for OneCycleLR momentum or beta1) of every group that an optimizer has when the Scheduler is
/// made. Borrows the optimizer, which must outlive it. Deterministic: ranks that step alike have the same
/// rates; never a collective.
class LOCKSTEP_API Scheduler {
 public:
  /// Sets the rates of k = 0 at once, as torch does. Groups start from their initial_lr.
  /// @throws ConfigError naming the field that is out of range, if momentum is to be cycled and there is
  /// none, or for another number of SWALR.swa_lr than of groups
  Scheduler(SchedulerOptions options, Optimizer& optimizer);

  /// k becomes k + 1, and the rates those of the new k. A group that was added since goes on from its rate.
  /// @throws ConfigError for ReduceLROnPlateau, which needs a metric, and past the end of OneCycleLR
  void step();

  /// As step(), with the value of the watched metric.
  /// @throws ConfigError unless needs_metric()
  void step(double metric);

  /// Whether this is ReduceLROnPlateau.
  bool needs_metric() const;

  /// k: the number of steps so far.
  std::int64_t last_step() const { return state_.last_step; }

  /// The learning rates this scheduler set last, by group.
  std::vector<double> last_lr() const { return state_.last_lrs; }

  /// What it must remember to go on in another process.
  const SchedulerState& state() const { return state_; }

  /// Continues where `state` was taken, from its next step on. The optimizer's rates stay as they are, as in
  /// PyTorch: the optimizer's own state has those of that moment.
  /// @throws CheckpointError if it was taken with another number of groups
  void load_state(SchedulerState state);

 private:
  void go_to(std::int64_t k);
  void set_lr(std::size_t group, double lr);

  SchedulerOptions options_;
  Optimizer* optimizer_;
  SchedulerState state_;
};

/// The fields of SchedulerState.
LOCKSTEP_API StateTree state_of(const Scheduler& scheduler);

/// Continues where `state` was taken, from its next step on; the rates until then are in the optimizer's
/// state.
/// @throws CheckpointError as the getters of StateTree, or for another number of groups
LOCKSTEP_API void load_state(Scheduler& scheduler, const StateTree& state);

}  // namespace lockstep
