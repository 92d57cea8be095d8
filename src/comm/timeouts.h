// Times to wait, as users give them.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep::detail {

/// `timeout`, or a year where it is longer: nobody waits for more, and clocks can still be added to.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365));
}

}  // namespace lockstep::detail
