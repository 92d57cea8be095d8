// Whether checkpoints can hold what a module holds, before it is trained.
#pragma once

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// @throws ConfigError naming a parameter or buffer that no checkpoint can hold
LOCKSTEP_API void require_storable(const torch::nn::Module& module);

}  // namespace lockstep::detail
