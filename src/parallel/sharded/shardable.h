// Which parameters can be sharded at all.
#pragma once

#include "parallel/module_states.h"

namespace lockstep::detail {

/// Whether parameters of this type are sharded; all ranks hold those of others.
bool is_sharded_type(at::ScalarType dtype);

/// @throws ConfigError naming a parameter that cannot be: trained integers or complex numbers, sparse, not on
/// the CPU, sharded already, or in another one's memory
void check_shardable(const ModuleStates& states);

}  // namespace lockstep::detail
