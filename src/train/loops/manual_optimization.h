// What becomes of one micro-batch where training_step itself runs backward and steps optimizers.
#pragma once

#include "train/loops/step_measure.h"
#include "train/loops/trainer_state.h"

namespace lockstep::detail {

/// Returns what training_step gave where it is one number, else 0.
double run_manual_step(const RunSetup& setup, const StepMeasure& measure, const AnyBatch& batch,
                       StepContext& step);

}  // namespace lockstep::detail
