// The states of a torch::nn::Module, its parameters and buffers, and of this rank's random generators as
// StateTrees, and how they are divided among files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// What torch.nn.Module.load_state_dict returns: the names that only one side has, in alphabetical order.
/// Both are empty after a strict load.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys = {};  ///< names of the module, which keeps its own values for them
  std::vector<std::string> unexpected_keys = {};  ///< names of what was loaded, which were ignored

  /// Whether every key had its place.
  bool empty() const { return missing_keys.empty() && unexpected_keys.empty(); }
};

/// Warns with Lightning's text of the names that only `source` or only the module has. Does nothing when
/// there are none.
LOCKSTEP_API void warn_of(const IncompatibleKeys& keys, const std::string& source);

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

/// The states of the generators from which torch's random functions and layers (dropout, initialisation)
/// draw: `cpu`, and `device` where `device` is another one. Copies. Not Collective; ranks differ.
LOCKSTEP_API StateTree random_state(at::Device device = at::kCPU);

/// Continues the generators from `state`. A state without `device`, as of a run on CPUs, leaves that of
/// `device` unchanged. @throws CheckpointError when it is no such state; nothing has changed then
LOCKSTEP_API void load_random_state(const StateTree& state, at::Device device = at::kCPU);

}  // namespace lockstep
