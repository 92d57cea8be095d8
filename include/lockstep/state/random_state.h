// The state of this rank's random generators.
#pragma once

#include <lockstep/state/state_tree.h>

namespace lockstep {

/// Where the generator stands that torch's random functions and layers (dropout, initialisation) draw
/// from on the CPU: `cpu`. A copy. Not Collective; ranks differ.
LOCKSTEP_API StateTree random_state();

/// Lets it draw on from there. @throws CheckpointError when it is no such state; nothing has changed then
LOCKSTEP_API void load_random_state(const StateTree& state);

}  // namespace lockstep
