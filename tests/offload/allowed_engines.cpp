#include "allowed_engines.h"

#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <lockstep/base/unique_fd.h>

namespace lockstep::offload {

bool uring_is_allowed() {
  io_uring_params parameters{};
  const UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &parameters)));
  return LOCKSTEP_WITH_LIBURING && ring;
}

}  // namespace lockstep::offload
