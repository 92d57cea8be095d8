// Facts about this process.
#pragma once

#include <chrono>
#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep {

/// Time since the run was started: since this process was, or the one that forked or re-executed it
/// (inherited through LOCKSTEP_START_NS, CLOCK_BOOTTIME nanoseconds). Resolution 10 ms.
LOCKSTEP_API std::chrono::nanoseconds time_since_start();

/// Makes the start of this process the start of the run for its children.
LOCKSTEP_API void publish_start();

/// The largest resident set that this process has had, in bytes.
LOCKSTEP_API std::int64_t peak_rss_bytes();

}  // namespace lockstep
