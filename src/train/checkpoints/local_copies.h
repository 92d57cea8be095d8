// What a fit has to do with its LocalCheckpoint, beside the hooks of that.
#pragma once

#include "checkpoint/local_checkpoints.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Those of the callbacks' LocalCheckpoint; null where there is none.
LocalCheckpoints* local_checkpoints(const RunSetup& setup);

/// Training begins: those are removed that it does not go on from. Not Collective.
void forget_local_checkpoints(const RunSetup& setup);

/// Fit has failed: waits for what is under way, and leaves its group. All is kept. Blocking.
void release_local_checkpoints(const RunSetup& setup);

/// Fit is over: waits for what is under way, and removes all where every rank has saved everything.
/// Collective, blocking.
void end_local_checkpoints(const RunSetup& setup, const CheckpointSession& checkpoints);

}  // namespace lockstep::detail
