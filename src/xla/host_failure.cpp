#include "xla/host_failure.h"

#include <exception>
#include <mutex>

namespace lockstep::xla {
namespace {

struct KeptFailure {
  std::mutex mutex = {};
  std::exception_ptr exception = {};
};

KeptFailure& kept_failure() {
  static auto* const made = new KeptFailure;
  return *made;
}

}  // namespace

void keep_host_failure() {
  const std::lock_guard lock(kept_failure().mutex);
  if (!kept_failure().exception) kept_failure().exception = std::current_exception();
}

void rethrow_host_failure() {
  const std::lock_guard lock(kept_failure().mutex);
  if (kept_failure().exception) std::rethrow_exception(kept_failure().exception);
}

void forget_host_failure() {
  const std::lock_guard lock(kept_failure().mutex);
  kept_failure().exception = nullptr;
}

}  // namespace lockstep::xla
