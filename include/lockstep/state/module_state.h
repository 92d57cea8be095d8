// The state of a torch::nn::Module, its parameters and buffers, and how it is divided among files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/state/incompatible_keys.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// FSDP's state_dict_type.
enum class StateDictType {
  kFull,    ///< rank 0 writes: one file, as Python expects it
  kSharded  ///< every rank writes an equal share, which is fastest
};

LOCKSTEP_API std::span<const OptionName<StateDictType>> option_names(StateDictType);

}  // namespace lockstep

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
