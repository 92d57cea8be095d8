// What every run does before its loop.
#pragma once

#include <memory>

#include "train/run_state.h"

namespace lockstep::detail {

/// Forgets what the run before left, and takes `module`.
void begin_run(RunState& state, Stage stage, std::shared_ptr<AnyModule> module);

/// Asks the module for its callbacks, and puts all in their order.
void collect_hooks(RunState& state);

/// Data, setup hooks, configure_model, the weights to start from, the precision. Collective.
void prepare_module(RunState& state);

/// All values of the module are about to be loaded: those that DeferredInit has put off need not be computed.
void forget_first_values(const RunState& state);

/// A short validation, of which nothing stays. Collective.
void sanity_check(RunState& state);

}  // namespace lockstep::detail
