// A counter in shared memory that one rank raises and others wait for.
//
// Who waits spins for a moment, as long as the awaited rank may be running meanwhile, and sleeps in a futex
// then. It never yields: that would give a stranger a whole time slice.
#pragma once

#include <atomic>
#include <cstdint>

#include <lockstep/base/export.h>

#include "comm/shared_memory/flag_protocol.h"

namespace lockstep::detail {

/// The memory of the machine, and its kernel. Its functions but for fence() are in flag.cpp.
struct MachineMemory {
  template <class T>
  using Word = std::atomic<T>;

  static void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
  static int processor();
  template <class Look>
  static bool spin(const Look& look);
  static void wait(Word<std::uint32_t>& word, std::uint32_t value);
  static void wake(Word<std::uint32_t>& word);
};

struct Flag : FlagWords<MachineMemory> {};

/// Raises `flag` to `value` and wakes who sleeps. What was written before is seen by who sees the value.
LOCKSTEP_API void post(Flag& flag, std::uint64_t value);

/// Whether `flag` has come to `value`. What its rank wrote before is seen then.
inline bool has_come_to(const Flag& flag, std::uint64_t value) {
  return FlagProtocol<MachineMemory>::has_come_to(flag, value);
}

/// Spins for a moment if that may help. Returns whether `flag` has come to `value`.
LOCKSTEP_API bool spin_until(const Flag& flag, std::uint64_t value);

/// Sleeps until `flag` has come to `value`, for 10 ms at most. Returns whether it has.
LOCKSTEP_API bool sleep_until(Flag& flag, std::uint64_t value);

}  // namespace lockstep::detail
