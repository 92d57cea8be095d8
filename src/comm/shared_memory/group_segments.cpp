#include "comm/shared_memory/group_segments.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <ATen/ops/empty.h>

#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kLine = 64, kBlock = 4 << 10;  // bytes

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

void GroupSegments::take(std::byte* to, std::byte* slot, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += kBlock) {
    const auto end = std::min(bytes, begin + kBlock);
    std::memcpy(to + begin, slot + begin, end - begin);
    for (auto line = begin; line < end; line += kLine) slot[line] = std::byte{0};
  }
}

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
