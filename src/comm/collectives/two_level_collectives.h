// Collectives of ranks on several hosts, on two levels: within a host through the segments that its ranks
// share, and between hosts once for each host, not once for each rank.
//
// The first ranks of all hosts are a column, the second ones another, and so on. A sum is made within each
// host first, where each rank sums a part of the tensor; then each column sums its part, and last the ranks
// of a host give each other their parts. So through a host's network go 2 S (H - 1) / H bytes of S, whatever
// the number of its ranks. Because the ranks of a host are a node of the tree of ordered sums, the bits are
// the same.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/base/export.h>

#include "comm/algorithms/scratch.h"
#include "comm/algorithms/streamed_reduction.h"
#include "comm/collectives/collective.h"
#include "comm/shared_memory/group_segments.h"

namespace lockstep::detail {

/// Not thread-safe.
class LOCKSTEP_API TwoLevelCollectives {
 public:
  using AwaitLate = GroupSegments::AwaitLate;

  /// From now on they can be used: `host` are the segments of this rank's host. The ranks of each host follow
  /// each other, and are as many as those here, 2^k. Borrows both; the transport has transfers.
  void open(Transport& transport, GroupSegments& host);
  /// Whether perform() can carry out `collective`: the same on all ranks that call it.
  bool take(const Collective& collective) const;

  /// All members call the same. Tensors are contiguous. Collective, blocking. Returns how many bytes this
  /// rank has handed to others of its host. After what it throws, no member may use the segments again.
  /// @throws what `await_late` and the transport do
  std::int64_t perform(const Collective& collective, AwaitLate await_late);

 private:
  std::int64_t all_reduce(const Collective& collective, AwaitLate await_late);
  std::int64_t reduce_scatter(const Collective& collective, AwaitLate await_late);
  std::int64_t all_gather(const Collective& collective, AwaitLate await_late);

  Transport* transport_ = nullptr;
  GroupSegments* host_ = nullptr;
  int hosts_ = 0;
  std::vector<int> column_;  // this rank's, by host
  std::unique_ptr<StreamedReduction> between_;
  Scratch partials_;
};

}  // namespace lockstep::detail
