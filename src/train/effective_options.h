// The options in effect: plugins and those options that decide about others are applied to the Trainer's
// options.
#pragma once

#include <memory>

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Checks `options` and spells out what fast_dev_run, overfit_batches, barebones and missing limits mean.
/// @throws ConfigError naming the option, its value and what is accepted
TrainerOptions effective(TrainerOptions options);

/// Moves a ClusterEnvironment and a Precision from the plugins to the options that name them.
/// @throws ConfigError for a null pointer, two of one kind, or one that an option names too
void apply_plugins(TrainerOptions& options);

/// Sets LibTorch's process-wide switches for `deterministic` and `benchmark`. A switch whose option is not
/// set stays as it is.
void apply_determinism(const TrainerOptions& options);

}  // namespace lockstep::detail
