// A group for what goes on beside training.
#pragma once

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// The ranks of `communicator` in a group of their own, in which another thread may speak. Collective,
/// blocking.
Communicator own_group(const Communicator& communicator);

}  // namespace lockstep::detail
