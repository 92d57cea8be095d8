// Which engines tests can have here.
#pragma once

namespace lockstep::offload {

/// Whether this build has liburing and the kernel gives this process an io_uring, which containers often
/// forbid.
bool uring_is_allowed();

}  // namespace lockstep::offload
