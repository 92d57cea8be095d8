// Turns exceptions of a rank into its outcome and exit code.
#pragma once

#include <functional>

namespace lockstep::launch {

/// As run_rank(), for a body that has an exit code of its own.
int guard_rank(const std::function<int()>& body);

}  // namespace lockstep::launch
