// When callbacks that write to the loggers themselves do so.
#pragma once

#include <lockstep/train/train_context.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Whether log_every_n_steps, or the end of the run, asks for a row of the batch that runs: counted, as the
/// loggers' steps are, in batches that stepped.
inline bool is_log_step(const TrainContext& context) {
  const int every = context.options().log_every_n_steps;
  if (every <= 0) return false;
  return (context.batches_that_stepped() + 1) % every == 0 || context.should_stop();
}

/// The same in evaluation: of its own batches, unless it is a part of fit.
inline bool is_log_batch(const StepContext& step) {
  if (step.stage() == Stage::kFit) return is_log_step(step);
  const int every = step.options().log_every_n_steps;
  return every > 0 && ((step.batch_idx() + 1) % every == 0 || step.should_stop());
}

}  // namespace lockstep::detail
