// How a Trainer's ranks come together, and where they write.
#pragma once

#include "train/logging/run_log.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Finds out who this process is among the ranks that `setup` asks for. Where nobody has started them, it
/// becomes the supervisor of copies of itself and exits with their status.
/// @throws ConfigError when options and environment do not agree, or the strategy allows no such start
void find_ranks(RunSetup& setup);

/// Forms the group of ranks, once. Collective.
void join_ranks(RunSetup& setup, RunLog& log);

/// Gives all ranks the folder that rank 0 claims, once, with log and loggers. Collective.
void open_run_directory(RunSetup& setup, RunLog& log);

}  // namespace lockstep::detail
