// One thread's T per action. The thread writes, others read at the same time: no lock, and what was handed
// out stays where it is.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace lockstep::detail {

template <class T>
class ActionTable {
 public:
  ActionTable() = default;
  ActionTable(const ActionTable&) = delete;
  ActionTable& operator=(const ActionTable&) = delete;
  ~ActionTable() {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      Entry* const entries = chunks_[chunk].load(std::memory_order_relaxed);
      for (std::size_t i = 0; entries && i < kFirst << chunk; ++i) delete entries[i].load();
      delete[] entries;
    }
  }

  /// That of the action with this index, made the first time; null when memory is short. Only for the thread.
  T* at(std::uint32_t index) noexcept {
    const auto [chunk, offset] = place(index);
    Entry* entries = chunks_[chunk].load(std::memory_order_relaxed);
    if (!entries) entries = publish(chunks_[chunk], new (std::nothrow) Entry[kFirst << chunk]());
    if (!entries) return nullptr;
    T* const value = entries[offset].load(std::memory_order_relaxed);
    return value ? value : publish(entries[offset], new (std::nothrow) T);
  }

  /// The same, null when it was never made. For any thread.
  const T* find(std::uint32_t index) const noexcept {
    const auto [chunk, offset] = place(index);
    const Entry* const entries = chunks_[chunk].load(std::memory_order_acquire);
    return entries ? entries[offset].load(std::memory_order_acquire) : nullptr;
  }

 private:
  using Entry = std::atomic<T*>;
  struct Place {
    std::size_t chunk;
    std::size_t offset;
  };
  static constexpr std::size_t kFirst = 64;  // entries of the first chunk; each next one has twice as many

  static Place place(std::uint32_t index) {
    const auto chunk = static_cast<std::size_t>(std::bit_width(index / kFirst + 1)) - 1;
    return {chunk, index - kFirst * ((std::size_t{1} << chunk) - 1)};
  }

  template <class Value>
  static Value* publish(std::atomic<Value*>& to, Value* value) {
    to.store(value, std::memory_order_release);
    return value;
  }

  std::array<std::atomic<Entry*>, 27> chunks_ = {};
};

}  // namespace lockstep::detail
