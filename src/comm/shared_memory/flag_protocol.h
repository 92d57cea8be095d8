// How a flag is raised, and waited for, over any memory; flag.h has it over the machine's.
#pragma once

#include <atomic>
#include <cstdint>

#include "comm/shared_memory/memory.h"

namespace lockstep::detail {

/// The words of a flag, on cache lines of their own (a pair, which processors fetch together). Zero at first.
template <SharedMemory Memory>
struct alignas(128) FlagWords {
  template <class T>
  using Word = typename Memory::template Word<T>;

  Word<std::uint64_t> value;     ///< written by one rank
  Word<std::int32_t> processor;  ///< where that rank ran when it wrote last
  Word<std::uint32_t> wakes;     ///< what sleepers wait for to change
  Word<std::uint32_t> sleepers;  ///< ranks that sleep, or are about to
};

/// What flag.h says of its functions.
template <SharedMemory Memory>
struct FlagProtocol {
  using Flag = FlagWords<Memory>;

  // The fence orders the value before the question who sleeps; a sleeper says so before it asks for the
  // value.
  static void post(Flag& flag, std::uint64_t value) {
    flag.processor.store(Memory::processor(), std::memory_order_relaxed);
    flag.value.store(value, std::memory_order_release);
    Memory::fence();
    if (flag.sleepers.load(std::memory_order_relaxed) == 0) return;
    flag.wakes.fetch_add(1, std::memory_order_relaxed);
    Memory::wake(flag.wakes);
  }

  static bool has_come_to(const Flag& flag, std::uint64_t value) {
    return flag.value.load(std::memory_order_acquire) >= value;
  }

  static bool spin_until(const Flag& flag, std::uint64_t value) {
    if (has_come_to(flag, value)) return true;
    // A rank that was last seen here cannot go on before this one stops.
    if (flag.processor.load(std::memory_order_relaxed) == Memory::processor()) return false;
    return Memory::spin([&] { return has_come_to(flag, value); });
  }

  static bool sleep_until(Flag& flag, std::uint64_t value) {
    flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const auto seen = flag.wakes.load(std::memory_order_seq_cst);
    if (!has_come_to(flag, value)) Memory::wait(flag.wakes, seen);
    flag.sleepers.fetch_sub(1, std::memory_order_relaxed);
    return has_come_to(flag, value);
  }
};

}  // namespace lockstep::detail
