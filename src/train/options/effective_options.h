// What a Trainer's options and plugins come to: some of them decide about others.
#pragma once

#include <memory>

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Checks `options` and writes out what fast_dev_run, overfit_batches, barebones and missing limits mean.
/// @throws ConfigError naming the option, its value and what is accepted
TrainerOptions effective(TrainerOptions options);

/// Puts environment and precision where options of their own name them.
/// @throws ConfigError for a null pointer, two of one kind, or one that an option names too
void apply_plugins(TrainerOptions& options);

/// The one among the plugins; null where there is none.
std::shared_ptr<CheckpointIO> own_checkpoint_io(const TrainerOptions& options);

/// That, or lockstep's own.
std::shared_ptr<CheckpointIO> checkpoint_io(const TrainerOptions& options);

/// deterministic and benchmark; what is not asked for stays as it is.
void apply_determinism(const TrainerOptions& options);

}  // namespace lockstep::detail
