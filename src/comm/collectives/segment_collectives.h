// Collectives of ranks on one machine, through the segments that they share: tensors pass through slots in
// chunks that stay in the caches, and no rank sees another one's tensors.
//
// Sums: each rank copies into its slot what the others sum; each sums its slice of a chunk over all slots, in
// the order of the ranks, and writes the sum back into them, from where the slot's own rank takes it. So each
// cache line is written by who reads it, which is what costs least: a line that was only read elsewhere is
// expensive to write again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "comm/collectives/collective.h"
#include "comm/shared_memory/group_segments.h"

namespace lockstep::detail {

/// Not thread-safe.
class LOCKSTEP_API SegmentCollectives {
 public:
  using AwaitLate = GroupSegments::AwaitLate;

  /// From now on they can be used. Borrows the segments.
  void open(GroupSegments& segments) { segments_ = &segments; }
  bool are_open() const { return segments_ != nullptr; }

  /// Any collective but barriers; all members call the same. Sums are in the order of ranks. Tensors are
  /// contiguous. Collective, blocking. Returns how many bytes this rank has handed to others. After what it
  /// throws, no member may use the segments again. @throws what `await_late` does
  std::int64_t perform(const Collective& collective, AwaitLate await_late);

  // The table's column `run_in_segments`; perform() calls them.
  std::int64_t all_reduce(const Collective& collective, AwaitLate await_late);
  std::int64_t reduce_scatter(const Collective& collective, AwaitLate await_late);
  std::int64_t all_gather(const Collective& collective, AwaitLate await_late);
  std::int64_t broadcast(const Collective& collective, AwaitLate await_late);
  std::int64_t reduce(const Collective& collective, AwaitLate await_late);
  std::int64_t all_gather_list(const Collective& collective, AwaitLate await_late);
  std::int64_t gather(const Collective& collective, AwaitLate await_late);
  std::int64_t scatter(const Collective& collective, AwaitLate await_late);
  std::int64_t all_to_all(const Collective& collective, AwaitLate await_late);
  std::int64_t all_to_all_list(const Collective& collective, AwaitLate await_late);

 private:
  std::int64_t sum(const Collective& collective, std::optional<int> root, AwaitLate await_late);

  GroupSegments* segments_ = nullptr;
};

}  // namespace lockstep::detail
