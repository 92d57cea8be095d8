#include "comm/shared_memory/group_segments.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <ATen/ops/empty.h>

#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

// What every rank has, by rank. It is none of the group's payload.
template <class T>
std::vector<T> gather(Transport& transport, const T& own) {
  const auto mine = at::empty({static_cast<std::int64_t>(sizeof own)}, at::kByte);
  const auto all = at::empty({transport.size() * mine.numel()}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), &own, sizeof own);
  transport.all_gather(all, mine);
  transport.count_sent(-mine.numel() * (transport.size() - 1));
  std::vector<T> gathered(static_cast<std::size_t>(transport.size()));
  std::memcpy(gathered.data(), all.const_data_ptr(), all.nbytes());
  return gathered;
}

}  // namespace

std::unique_ptr<GroupSegments> open_segments(Transport& transport) {
  auto own = SharedSegment::create();
  auto addresses = gather(transport, own ? own->address() : SegmentAddress());
  std::vector<SharedSegment> members;
  for (int rank = 0; own && rank < transport.size(); ++rank) {
    auto segment = rank == transport.rank() ? std::optional(std::move(*own))
                                            : SharedSegment::open(addresses[static_cast<std::size_t>(rank)]);
    if (!segment) break;
    members.push_back(std::move(*segment));
  }
  const bool has_all = members.size() == addresses.size();
  const auto have_all = gather(transport, std::uint8_t{has_all});
  if (std::ranges::find(have_all, 0) != have_all.end()) return nullptr;
  return std::make_unique<GroupSegments>(std::move(members), std::move(addresses), transport.rank());
}

}  // namespace lockstep::detail
