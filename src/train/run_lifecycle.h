// What every run of a Trainer does before and after its loop.
#pragma once

#include <exception>
#include <memory>

#include "train/logging/run_log.h"
#include "train/loops/trainer_state.h"
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

/// Forgets what the run before left, and takes `module`.
void begin_run(TrainerState& state, Stage stage, std::shared_ptr<AnyModule> module);

/// Asks the module for its callbacks, and puts all in their order.
void collect_hooks(RunSetup& setup, HookList& hooks);

/// Data, setup hooks, configure_model, the weights to start from, the precision. Collective.
void prepare_module(RunSetup& setup, HookList& hooks, TrainContext& context);

/// All values of the module are about to be loaded: those that DeferredInit has put off need not be computed.
void forget_first_values(const AnyModule& module);

/// A short validation, of which nothing stays. Collective.
void sanity_check(TrainerState& state);

/// A run that ended well: hooks, loggers, profiler and summary.json. Collective.
void end_run(TrainerState& state);

/// What has run in the place of training or evaluation leaves nothing but what it has found. Collective.
void end_search(TrainerState& state);

/// Tells the hooks of `error`, keeps what was logged, and leaves the group, so that peers notice at once.
/// Never throws. Not Collective.
void end_failed_run(TrainerState& state, const std::exception& error);

}  // namespace lockstep::detail
