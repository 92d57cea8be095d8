// What a program brings along in TrainerOptions::plugins.
#pragma once

#include <memory>

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Puts environment and precision where options of their own name them.
/// @throws ConfigError for a null pointer, two of one kind, or one that an option names too
void apply_plugins(TrainerOptions& options);

/// The one among the plugins; null where there is none.
std::shared_ptr<CheckpointIO> own_checkpoint_io(const TrainerOptions& options);

/// That, or lockstep's own.
std::shared_ptr<CheckpointIO> checkpoint_io(const TrainerOptions& options);

}  // namespace lockstep::detail
