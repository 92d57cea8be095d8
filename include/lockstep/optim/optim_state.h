// Optimizers and schedulers as StateTrees.
#pragma once

#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/scheduler.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// `name`, `groups` (each group's values and its parameters' names) and `state`: per parameter its
/// tensors under torch's names. The tensors alias the optimizer's. Not Collective.
LOCKSTEP_API StateTree state_of(Optimizer& optimizer);

/// Copies tensors in place and sets the groups' values.
/// @throws CheckpointError naming what is missing, unknown or of another optimizer; nothing has changed then
LOCKSTEP_API void load_state(Optimizer& optimizer, const StateTree& state);

/// The fields of SchedulerState.
LOCKSTEP_API StateTree state_of(const Scheduler& scheduler);

/// Continues where `state` was taken, and sets the rates of that moment: load the optimizer first.
/// @throws CheckpointError as the getters of StateTree, or for another number of groups
LOCKSTEP_API void load_state(Scheduler& scheduler, const StateTree& state);

}  // namespace lockstep
