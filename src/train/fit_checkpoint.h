// A run of fit as a checkpoint, and back.
#pragma once

#include <filesystem>

#include "train/run_state.h"

namespace lockstep::detail {

/// Writes where fit is now, with all that another process needs to go on from here, or, with `weights_only`,
/// the model and the configuration; with async_checkpoint it returns when that is copied. Collective.
/// @throws ConfigError inside a batch, where there is no such place; IoError as save_checkpoint()
void save_fit(RunState& state, const std::filesystem::path& folder, bool weights_only = false);

/// Says so, once, if a checkpoint that was written in the background was not. Does not block, nothing
/// Collective.
void notice_failed_save(RunState& state);

/// Waits for what is being written in the background, and leaves the group that it is written by. @throws
/// IoError when it was not written
void await_save(RunState& state);

/// What is taken before training begins: weights, optimizer, schedule, callbacks, counters. Everything of a
/// rank's own comes from its namesake; where the world has another size, see docs/checkpointing.md.
/// Collective.
/// @throws IoError, CheckpointError
void load_fit(RunState& state, const Checkpoint& checkpoint);

/// What must be as it was when the first batch is asked for: gradients of the window that was under way, what
/// was logged, random generators. Not Collective.
void load_moment(RunState& state, const Checkpoint& checkpoint);

/// The weights alone, for evaluation. Not Collective.
void load_weights_of(RunState& state, const Checkpoint& checkpoint);

}  // namespace lockstep::detail
