// The state of this rank's random generators.
#pragma once

#include <lockstep/state/state_tree.h>

namespace lockstep {

/// The states of the generators from which torch's random functions and layers (dropout, initialisation)
/// draw: `cpu`, and `device` where `device` is another one. Copies. Not Collective; ranks differ.
LOCKSTEP_API StateTree random_state(at::Device device = at::kCPU);

/// Continues the generators from `state`. A state without `device`, as of a run on CPUs, leaves that of
/// `device` unchanged. @throws CheckpointError when it is no such state; nothing has changed then
LOCKSTEP_API void load_random_state(const StateTree& state, at::Device device = at::kCPU);

}  // namespace lockstep
