// How callbacks change accumulate_grad_batches within a fit, and what a checkpoint keeps of that.
#pragma once

#include <lockstep/state/state_tree.h>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Every fit begins with the Trainer's own schedule.
void forget_accumulation(RunSetup& setup);

/// Adds to `loops`, of a checkpoint, what callbacks have changed since the hooks setup().
void keep_accumulation(const RunSetup& setup, StateTree& loops);

/// Goes on with what keep_accumulation() has kept, unless this run begins with another schedule, which then
/// holds, with a warning. @throws CheckpointError for what is no schedule
void adopt_accumulation(RunSetup& setup, const StateTree& loops);

}  // namespace lockstep::detail
