// The state of a torch::nn::Module: its parameters and buffers.
#pragma once

#include <lockstep/state/incompatible_keys.h>
#include <lockstep/state/state_tree.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Every parameter and buffer of `module` under its PyTorch name (`net.0.weight`), in the order of
/// registration. The tensors alias the module's. Not Collective.
LOCKSTEP_API StateTree module_state(const torch::nn::Module& module);

/// Copies `state` into the parameters and buffers of `module`, in place. Unless it is `strict`, names that
/// only one of them has are no error; they are returned.
/// @throws CheckpointError naming every tensor that is missing, unknown or of another shape or element
///   type; nothing is copied then
LOCKSTEP_API IncompatibleKeys load_module_state(torch::nn::Module& module, const StateTree& state,
                                                bool strict = true);

}  // namespace lockstep
