// The options in effect: plugins and those options that decide about others are applied to the Trainer's
// options.
#pragma once

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Checks `options`, takes what is among the plugins, and spells out what fast_dev_run, overfit_batches,
/// barebones and missing limits mean.
/// @throws ConfigError naming the option, its value and what is accepted; naming plugins that are null, two
/// of a kind, or of what an option names, too
TrainerOptions effective(TrainerOptions options);

/// Sets LibTorch's process-wide switches for `deterministic` and `benchmark`. A switch whose option is not
/// set stays as it is.
void apply_determinism(const TrainerOptions& options);

}  // namespace lockstep::detail
