// How a Trainer's ranks come together: who starts them, who they are, where they write.
#pragma once

#include "train/run_state.h"

namespace lockstep::detail {

/// Ranks per node and nodes: from the options, or from the launcher that started this process.
/// @throws ConfigError
WorldShape world_shape(const TrainerOptions& options, const ClusterEnvironment& environment);

/// Where nobody has started the ranks that `state` needs, this process becomes the supervisor of
/// copies of itself and exits with their status.
/// @throws ConfigError when the strategy allows no such start
void start_ranks_if_needed(RunState& state);

/// Forms the group of ranks, once. Collective.
void join_ranks(RunState& state);

/// Gives all ranks the folder that rank 0 claims, once, with log and loggers. Collective.
void open_run_directory(RunState& state);

}  // namespace lockstep::detail
