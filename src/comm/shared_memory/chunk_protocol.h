// When the members of a group may write and read the slots of their segments, over any memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::detail {

/// Chunks are numbered from 1, over all collectives of the group, in step on all members. Each is staged by
/// some members and finished by all: who has finished a chunk reads and writes no slot of another member for
/// it any more. A slot is taken again Segments::kSlots chunks later.
///
/// Segments, which derives from this, has rank(), size(), staged(member) and finished(member), which are
/// flags of that member that it alone raises. Flags have post(), spin_until(), sleep_until() and
/// has_come_to(). AwaitLate waits on for a member that is late: (member, its flag, value).
template <class Segments>
class ChunkProtocol {
 public:
  explicit ChunkProtocol(int size) : finished_(static_cast<std::size_t>(size), 0) {}

  /// The number of the last chunk so far. A collective adds its own at its end.
  std::uint64_t chunks() const { return chunks_; }
  void add_chunks(std::uint64_t count) { chunks_ += count; }

  /// Returns when all members have finished the chunk whose slot `chunk` is to take. @throws what
  /// `await_late` does, here and below
  template <class AwaitLate>
  void await_slot(std::uint64_t chunk, const AwaitLate& await_late) {
    if (chunk <= Segments::kSlots) return;
    for (int member = 0; member < self().size(); ++member)
      if (member != self().rank()) self().await_finished(member, chunk - Segments::kSlots, await_late);
  }

  /// This rank has staged `chunk`.
  void post_staged(std::uint64_t chunk) { post(self().staged(self().rank()), chunk); }

  template <class AwaitLate>
  void await_staged(int member, std::uint64_t chunk, const AwaitLate& await_late) {
    self().await(self().staged(member), chunk, member, await_late);
  }

  /// This rank has finished `chunk`.
  void post_finished(std::uint64_t chunk) { post(self().finished(self().rank()), chunk); }

  // A flag whose value is known is not read again: its cache line would be taken from the rank that writes
  // it.
  template <class AwaitLate>
  void await_finished(int member, std::uint64_t chunk, const AwaitLate& await_late) {
    auto& known = finished_[static_cast<std::size_t>(member)];
    if (known >= chunk) return;
    auto& flag = self().finished(member);
    self().await(flag, chunk, member, await_late);
    known = flag.value.load(std::memory_order_acquire);
  }

  /// Returns when `flag`, a flag of `member`, has come to `value`.
  template <class Flag, class AwaitLate>
  static void await(Flag& flag, std::uint64_t value, int member, const AwaitLate& await_late) {
    if (spin_until(flag, value) || sleep_until(flag, value)) return;
    await_late(member, flag, value);
  }

 private:
  Segments& self() { return static_cast<Segments&>(*this); }

  std::vector<std::uint64_t> finished_;  // what is known, by member
  std::uint64_t chunks_ = 0;
};

}  // namespace lockstep::detail
