// Which parameters of a module form which unit.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <lockstep/parallel/sharded/sharding_plan.h>
#include <lockstep/parallel/wrap_policy.h>

#include "parallel/activations/block_segments.h"
#include "parallel/sharded/flat_parameter.h"

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// A unit before it is sharded.
struct PlannedUnit {
  std::string name;  ///< of its module; empty: the root
  std::vector<ShardedTensor> members = {};
  bool is_whole = false;       ///< not to be sharded
  bool is_persistent = false;  ///< stays gathered until parameters change
};

/// Every floating-point parameter of `module` in one unit: that of the innermost module that `policy` chose,
/// or the root's, which comes first and may be empty. Those of modules that `ignored` chose are in units that
/// are not to be sharded. A parameter that is registered several times counts
/// once, under its first name. `option` is what users call the policy.
/// @throws ConfigError listing the types that the module has, when a policy by type, size or predicate
/// chose nothing, or one by name has a name that chose nothing. Exported for tests.
LOCKSTEP_API std::vector<PlannedUnit> plan_units(const torch::nn::Module& module, const WrapPolicy& policy,
                                                 const std::optional<WrapPolicy>& ignored = {},
                                                 const std::string& option = "auto_wrap_policy");

/// A sentence on what may surprise in the units of plan_units(): a type of the policy that no module has, or
/// repeated blocks that are too small to be units. Empty: nothing.
LOCKSTEP_API std::string note_on_units(const torch::nn::Module& module, const WrapPolicy& policy,
                                       const std::string& option = "auto_wrap_policy");

/// `units` with the parameters that `plan` wants to be persistent in a unit of their own, the last.
LOCKSTEP_API std::vector<PlannedUnit> with_persistent_unit(std::vector<PlannedUnit> units,
                                                           const ShardingPlan& plan);

/// The blocks that activation checkpointing computes again: the modules that `policy` chooses, the innermost
/// where they lie inside of each other, with parameters; before them what belongs to none.
/// @throws ConfigError listing the types that the module has, when it chose nothing
std::vector<CheckpointedBlock> plan_blocks(const torch::nn::Module& module, const WrapPolicy& policy);

/// The parameters and buffers of batch normalisations in `module`, which compute in their own type.
std::unordered_set<const at::TensorImpl*> batch_norm_tensors(const torch::nn::Module& module);

}  // namespace lockstep::detail
