// Asks the module for its optimizers and sets them up, with what they train, under the strategy.
#pragma once

#include "train/options/deepspeed_options.h"
#include "train/run_state.h"

namespace lockstep::detail {

/// Collective.
/// @throws ConfigError for optimizers that the module's way of optimisation, or the options, do not allow
void set_up_optimizers(RunState& state);

/// Of a fit whose training data is open.
TrainedBatches trained_batches(const RunState& state);

}  // namespace lockstep::detail
