// How a Trainer's ranks come together, and where they write.
#pragma once

#include "train/run_state.h"

namespace lockstep::detail {

/// Finds out who this process is among the ranks that `state` needs. Where nobody has started them, it
/// becomes the supervisor of copies of itself and exits with their status.
/// @throws ConfigError when options and environment do not agree, or the strategy allows no such start
void find_ranks(RunState& state);

/// Forms the group of ranks, once. Collective.
void join_ranks(RunState& state);

/// Gives all ranks the folder that rank 0 claims, once, with log and loggers. Collective.
void open_run_directory(RunState& state);

}  // namespace lockstep::detail
