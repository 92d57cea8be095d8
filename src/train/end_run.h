// How runs of the Trainer end, well or not.
#pragma once

#include <exception>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// A run that ended well: hooks, loggers, profiler and summary.json. Collective.
void end_run(TrainerState& state);

/// What has run in the place of training or evaluation leaves nothing but what it has found. Collective.
void end_search(TrainerState& state);

/// Tells the hooks of `error`, keeps what was logged, and leaves the group, so that peers notice at once.
/// Never throws. Not Collective.
void end_failed_run(TrainerState& state, const std::exception& error);

}  // namespace lockstep::detail
