// The optimizers of a fit: asks the module for them and has the strategy set them up with the modules that
// they train.
#pragma once

#include "train/loops/trainer_state.h"
#include "train/options/deepspeed_options.h"

namespace lockstep::detail {

/// Fills RunSetup::optimizers and RunSetup::trained. Collective.
/// @throws ConfigError for optimizers that automatic or manual optimisation, or the options, do not allow
void set_up_optimizers(RunSetup& setup, const RunData& data, const FitProgress& progress);

/// Batch size, accumulation, ranks and steps of a fit whose training data is open.
TrainedBatches trained_batches(const RunSetup& setup, const RunData& data, const FitProgress& progress);

}  // namespace lockstep::detail
