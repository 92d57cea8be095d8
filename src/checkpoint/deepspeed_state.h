// What a checkpoint of DeepSpeed holds, as the StateTrees that models and optimizers take.
#pragma once

#include <lockstep/state/state_tree.h>

#include "formats/zero_checkpoint.h"

namespace lockstep::detail {

/// The weights in float32. Of tensors that are TensorShards in `wanted`, just these runs.
/// @throws CheckpointError as zero_weights()
LOCKSTEP_API StateTree deepspeed_model(const ZeroCheckpoint& checkpoint, const StateTree& wanted);

/// `own`, the state of an optimizer, with the values that the checkpoint has for it: what it keeps of each
/// parameter, as TensorShards where `own` has some, and the groups' lr, weight_decay and betas. A group of
/// `own` whose parameters had several values of such a setting keeps its own; with a warning where `warns`,
/// as one of the ranks should.
/// @throws CheckpointError as ZeroOptimizer; naming parameter or kind of state that is not there
LOCKSTEP_API StateTree deepspeed_optimizer(const ZeroCheckpoint& checkpoint, const StateTree& own,
                                           bool warns);

/// `own`, the state of a scheduler, where the checkpoint's has come to; empty where it has none.
/// @throws CheckpointError when it does not say where that is
LOCKSTEP_API StateTree deepspeed_scheduler(const ZeroCheckpoint& checkpoint, const StateTree& own);

/// What else the program and DeepSpeed have saved: global_steps, global_samples, skipped_steps, lr_scheduler,
/// and the program's client_state.
/// @throws CheckpointError for values that no StateTree holds
LOCKSTEP_API StateTree deepspeed_client_state(const ZeroCheckpoint& checkpoint);

}  // namespace lockstep::detail
