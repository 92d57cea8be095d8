// What restore_sharded() does, but for its look at parts of other modules.
#pragma once

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// As restore_sharded(); leaves what is sharded as a part of another module as it is, for those who only use
/// it. Collective, blocking.
void restore_engines_of(const torch::nn::Module& module);

}  // namespace lockstep::detail
