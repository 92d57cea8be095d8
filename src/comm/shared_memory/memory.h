// What the protocols of flags, slots and boards ask of the memory that ranks share, and of the system.
//
// The protocols are templates over it: production has the machine's memory, and the model of
// tests/comm/model/ one whose every access is a step of its own.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>

namespace lockstep::detail {

/// Words have the interface of std::atomic.
template <class M>
concept SharedMemory = requires(typename M::template Word<std::uint32_t>& word, std::uint32_t value,
                                std::memory_order order, bool (*look)()) {
  { word.load(order) } -> std::same_as<std::uint32_t>;
  word.store(value, order);
  word.fetch_add(value, order);
  word.fetch_sub(value, order);
  // Orders all accesses before it and after it.
  M::fence();
  // Where this rank runs.
  { M::processor() } -> std::convertible_to<std::int32_t>;
  // Looks for a moment, until a look succeeds. Returns whether one did.
  { M::spin(look) } -> std::same_as<bool>;
  // Sleeps while `word` is `value`, for a limited time; may return early.
  M::wait(word, value);
  // Wakes all who sleep at `word`.
  M::wake(word);
};

}  // namespace lockstep::detail
