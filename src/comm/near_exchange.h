// Exchanges among ranks that all read each other's memory, without messages: they meet, each tells the others
// where their parts lie, all read, and they meet again before anybody changes what it gave.
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

#include "comm/peer_memory.h"

namespace lockstep::detail {

/// How members of a group meet: each gets the others' bytes, by member. Returns when all have called it.
/// Collective, blocking. @throws as Agreement::reach()
using TakeBytes = std::function<void(int member, std::string_view bytes)>;
using Meet = std::function<void(std::string_view bytes, const TakeBytes& take)>;

/// The same part of what every rank has given.
struct RowSlice {
  std::size_t begin;  ///< in bytes
  std::size_t bytes;
  std::span<const void* const> rows;  ///< by rank, from there on
};
using TakeSlice = std::function<void(const RowSlice&)>;

/// Not thread-safe.
class LOCKSTEP_API NearExchange {
 public:
  /// Rank `rank` of a group, whose parts `seal` vouches for.
  NearExchange(int rank, Seal& seal) : rank_(rank), seal_(seal) {}

  /// All exchanges are by this; without, there are none.
  void meet_by(Meet meet) { meet_ = std::move(meet); }
  /// All of `members` can read each other's memory, this one included.
  void open(std::vector<MemoryOwner> members) { members_ = std::move(members); }

  /// Whether parts of so many bytes for each rank go this way: the same on all ranks.
  bool takes(std::size_t bytes) const;

  /// Every rank has a tensor to[r] for each rank r, this one included, which r gets in from[own rank]. All
  /// are contiguous; none of `from` shares memory with one of another rank's `to`. Collective, blocking.
  void run(std::span<const at::Tensor> to, std::span<const at::Tensor> from);
  /// The same where from[r] are not kept: `take` gets them all together, a slice after the other, to[own
  /// rank] being this rank's. All have its size. It may write to that one. Slices begin at multiples of 64
  /// bytes.
  void run(std::span<const at::Tensor> to, const TakeSlice& take);

 private:
  std::vector<MemoryPart> parts_for_me(std::span<const at::Tensor> to, std::span<const std::size_t> sizes);
  void read_slices(std::span<const MemoryPart> parts, const at::Tensor& mine, const TakeSlice& take);
  void read(std::size_t member, const MemoryPart& part, void* to) const;
  std::size_t own() const { return static_cast<std::size_t>(rank_); }

  int rank_;
  Seal& seal_;
  Meet meet_;
  std::vector<MemoryOwner> members_;  // none until it is open
  std::vector<std::byte> slices_;     // of all ranks
};

}  // namespace lockstep::detail
