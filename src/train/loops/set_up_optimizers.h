// Asks the module for its optimizers and sets them up, with what they train, under the strategy.
#pragma once

#include "train/loops/trainer_state.h"
#include "train/options/deepspeed_options.h"

namespace lockstep::detail {

/// Collective.
/// @throws ConfigError for optimizers that the module's way of optimisation, or the options, do not allow
void set_up_optimizers(RunSetup& setup, const RunData& data, const FitProgress& progress);

/// Of a fit whose training data is open.
TrainedBatches trained_batches(const RunSetup& setup, const RunData& data, const FitProgress& progress);

}  // namespace lockstep::detail
