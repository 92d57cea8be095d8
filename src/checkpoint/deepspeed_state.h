// What a checkpoint of DeepSpeed holds, as the StateTrees that models and optimizers take.
#pragma once

#include <lockstep/state/state_tree.h>

#include "formats/zero_checkpoint.h"

namespace lockstep::detail {

/// The weights in float32. Of tensors that are TensorShards in `wanted`, just these runs.
/// @throws CheckpointError as zero_weights()
LOCKSTEP_API StateTree deepspeed_model(const ZeroCheckpoint& checkpoint, const StateTree& wanted);

/// `own`, the state of an optimizer, with the values that the checkpoint has for it: the state of each
/// parameter, as TensorShards where `own` has some, and lr, weight_decay and betas of the groups. A group of
/// `own` whose parameters had different values of such a setting keeps its own value; with `warns`, which one
/// rank should set, a warning says so.
/// @throws CheckpointError as ZeroOptimizer; naming parameter or kind of state that is not there
LOCKSTEP_API StateTree deepspeed_optimizer(const ZeroCheckpoint& checkpoint, const StateTree& own,
                                           bool warns);

/// `own`, the state of a scheduler, set to the step that the checkpoint's scheduler had reached; empty where
/// the checkpoint has none.
/// @throws CheckpointError when the checkpoint does not contain that step
LOCKSTEP_API StateTree deepspeed_scheduler(const ZeroCheckpoint& checkpoint, const StateTree& own);

/// The other values that the program and DeepSpeed have saved: global_steps, global_samples, skipped_steps,
/// lr_scheduler, and the program's client_state.
/// @throws CheckpointError for values that no StateTree holds
LOCKSTEP_API StateTree deepspeed_client_state(const ZeroCheckpoint& checkpoint);

}  // namespace lockstep::detail
