// The loaders of a run, wherever they come from.
#pragma once

#include <lockstep/train/trainer.h>

#include "train/run_state.h"

namespace lockstep::detail {

/// Sets up the data module, if there is one, and gives the state its loaders for fit. Collective.
/// @throws ConfigError when there is nothing to train on; DataError when a rank gets nothing
void open_training_data(RunState& state, const DataSource& data);

/// The same for another stage, whose loader is returned. Collective.
std::shared_ptr<AnyLoader> open_evaluation_data(RunState& state, const DataSource& data);

/// Ask the data module, which is set up, for its loaders once more. Collective.
void reopen_training_data(RunState& state);
std::shared_ptr<AnyLoader> reopen_evaluation_data(RunState& state);

/// After the stage. Not Collective.
void close_data(RunState& state);

}  // namespace lockstep::detail
