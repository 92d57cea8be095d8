// Waiting for what can only be looked at.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/sockets.h"

namespace lockstep::detail {

/// Looks until `is_there()` or the deadline has passed: again after 1 ms, then less and less often, but every
/// 20 ms at least. Returns whether it is there. What is_there() throws goes through.
template <class Look>
bool poll_until(Deadline deadline, Look is_there) {
  using std::chrono::milliseconds;
  for (auto pause = milliseconds(1); !is_there(); pause = std::min(2 * pause, milliseconds(20))) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    std::this_thread::sleep_until(std::min(deadline, now + pause));
  }
  return true;
}

}  // namespace lockstep::detail
