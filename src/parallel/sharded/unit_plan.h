// Which parameters of a module form which unit.
#pragma once

#include <string>
#include <vector>

#include <lockstep/parallel/sharded/wrap_policy.h>

#include "parallel/sharded/flat_parameter.h"

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// A unit before it is sharded.
struct PlannedUnit {
  std::string name;  ///< of its module; empty: the root
  std::vector<ShardedTensor> members = {};
};

/// Every floating-point parameter of `module` in one unit: that of the innermost module that `policy` chose,
/// or the root's, which comes first and may be empty. A parameter that is registered several times counts
/// once, under its first name.
/// @throws ConfigError listing the types that the module has, when a policy by type, size or predicate
/// chose nothing. Exported for tests.
LOCKSTEP_API std::vector<PlannedUnit> plan_units(const torch::nn::Module& module, const WrapPolicy& policy);

}  // namespace lockstep::detail
