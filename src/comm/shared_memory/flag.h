// A counter in shared memory that one rank raises and others wait for.
//
// Who waits spins for a moment, as long as the awaited rank may be running meanwhile, and sleeps in a futex
// then. It never yields: that would give a stranger a whole time slice.
#pragma once

#include <atomic>
#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// On cache lines of its own (a pair, which processors fetch together). Zero at first.
struct alignas(128) Flag {
  std::atomic<std::uint64_t> value;     ///< written by one rank
  std::atomic<std::int32_t> processor;  ///< where that rank ran when it wrote last
  std::atomic<std::uint32_t> wakes;     ///< what sleepers wait for to change
  std::atomic<std::uint32_t> sleepers;  ///< ranks that sleep, or are about to
};

/// Raises `flag` to `value` and wakes who sleeps. What was written before is seen by who sees the value.
LOCKSTEP_API void post(Flag& flag, std::uint64_t value);

/// Whether `flag` has come to `value`. What its rank wrote before is seen then.
inline bool has_come_to(const Flag& flag, std::uint64_t value) {
  return flag.value.load(std::memory_order_acquire) >= value;
}

/// Spins for a moment if that may help. Returns whether `flag` has come to `value`.
LOCKSTEP_API bool spin_until(const Flag& flag, std::uint64_t value);

/// Sleeps until `flag` has come to `value`, for 10 ms at most. Returns whether it has.
LOCKSTEP_API bool sleep_until(Flag& flag, std::uint64_t value);

}  // namespace lockstep::detail
