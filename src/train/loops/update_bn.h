// Running statistics of BatchNorm layers for weights that no batch was trained with.
#pragma once

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// TrainContext::update_bn. Collective.
void update_bn(TrainerState& state);

}  // namespace lockstep::detail
