// Micro-batches without a loss: what the loader left empty, or training_step gave no tensor for.
#pragma once

#include <string>

#include "train/run_state.h"

namespace lockstep::detail {

/// "rank 0, epoch 1, batch 2", for errors.
std::string place_of(const StepContext& step);

/// Lets a micro-batch add nothing, as `what` says, with a warning for the first of a run. Returns the loss
/// that hooks then see: not a number. Not Collective.
/// @throws ConfigError in a world of several, where others would wait for its gradients
double leave_out_loss(RunState& state, const char* what, const StepContext& step);

}  // namespace lockstep::detail
