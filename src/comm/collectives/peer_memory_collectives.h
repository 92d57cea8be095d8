// Collectives of ranks that all read each other's memory, without messages: where each rank's tensor lies
// travels with the announcement, the others read there, and all meet once more before anybody changes what it
// showed.
//
// A message of Gloo's is written while the lock of its connection is held. Where there are more threads than
// cores its writer often loses the processor just then, to the thread that it has woken, and Gloo's own
// thread spins on the lock meanwhile: milliseconds of a core, for a few bytes. (docs/decisions/008)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "comm/collectives/collective.h"
#include "comm/transport/peer_memory.h"

namespace lockstep::detail {

/// How the members of a group come together for one collective. Both return when all have called them.
/// Collective, blocking. @throws as Agreement::reach()
struct Meetings {
  using Take = std::function<void(int member, std::string_view bytes)>;
  std::function<void(std::string_view bytes, const Take& take)> first;  ///< each gets the others' bytes
  std::function<void()> next;
};

/// Not thread-safe.
class LOCKSTEP_API PeerMemoryCollectives {
 public:
  /// Of rank `rank` of a group; `seal` vouches for what it shows. Borrows it.
  PeerMemoryCollectives(int rank, Seal& seal) : rank_(rank), seal_(seal) {}

  /// All of `members`, by rank, can read each other's memory, this one included.
  void open(std::vector<MemoryOwner> members) { members_ = std::move(members); }
  bool are_open() const { return !members_.empty(); }

  /// An all-reduce or reduce-scatter with sums in the order of ranks, an all-gather or a broadcast. Tensors
  /// are contiguous. Collective, blocking. Returns how many bytes of this rank the others have read.
  /// @throws std::runtime_error when memory cannot be read any more; what the meetings throw. Nobody can read
  ///   what this rank shows then: these were the last ones
  std::int64_t perform(const Collective& collective, const Meetings& meetings);

  // The table's column `run_in_peer_memory`; perform() calls them.
  std::int64_t all_reduce(const Collective& collective, const Meetings& meetings);
  std::int64_t reduce_scatter(const Collective& collective, const Meetings& meetings);
  std::int64_t all_gather(const Collective& collective, const Meetings& meetings);
  std::int64_t broadcast(const Collective& collective, const Meetings& meetings);

 private:
  struct Range {
    std::size_t begin;
    std::size_t bytes;
  };
  using Shown = std::vector<MemoryPart>;  // by rank

  Shown show(const at::Tensor& tensor, const Meetings& meetings) const;
  void reduce_range(const Shown& shown, Range range, at::ScalarType dtype, ReduceOp op, void* output);
  void read(std::size_t member, const MemoryPart& shown, Range range, void* to) const;
  std::size_t own() const { return static_cast<std::size_t>(rank_); }

  int rank_;
  Seal& seal_;
  std::vector<MemoryOwner> members_;  // none until they are open
  std::vector<std::byte> slices_;     // of all ranks
};

}  // namespace lockstep::detail
