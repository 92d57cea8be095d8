// How callbacks change accumulate_grad_batches within a fit, and what a checkpoint keeps of that.
#pragma once

#include <optional>

#include <lockstep/state/state_tree.h>
#include <lockstep/train/batch_counts.h>

namespace lockstep::detail {

struct RunSetup;

/// Schedules beside TrainerOptions::accumulate_grad_batches, which is the one in effect.
struct AccumulationChanges {
  AccumulationSchedule given;                     ///< the Trainer's own, which every fit begins with
  AccumulationSchedule first;                     ///< after the hooks setup() of this fit
  std::optional<AccumulationSchedule> next = {};  ///< comes into effect when the next epoch begins
};

/// Every fit begins with the Trainer's own schedule.
void forget_accumulation(RunSetup& setup);

/// Adds to `loops`, of a checkpoint, what callbacks have changed since the hooks setup().
void keep_accumulation(const RunSetup& setup, StateTree& loops);

/// Goes on with what keep_accumulation() has kept, unless this run begins with another schedule, which then
/// holds, with a warning. @throws CheckpointError for what is no schedule
void adopt_accumulation(RunSetup& setup, const StateTree& loops);

}  // namespace lockstep::detail
