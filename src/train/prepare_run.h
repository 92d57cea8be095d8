// What every run does before its loop.
#pragma once

#include <memory>

#include "train/loops/trainer_state.h"

namespace lockstep::detail {

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

}  // namespace lockstep::detail
