#include "comm/shared_memory/group_segments.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

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

int members_of_each_host(std::span<const std::uint64_t> machines) {
  const auto all = machines.size();
  const auto is_other = [&](std::uint64_t machine) { return machine != machines.front(); };
  const auto members = static_cast<std::size_t>(std::ranges::find_if(machines, is_other) - machines.begin());
  if (std::ranges::find(machines, 0U) != machines.end()) return 0;
  if (members == all) return static_cast<int>(members);
  if (members < 2 || !std::has_single_bit(members) || all % members != 0) return 0;
  std::set<std::uint64_t> seen;
  for (std::size_t first = 0; first < all; first += members) {
    const auto host = machines.subspan(first, members);
    if (std::ranges::count(host, host.front()) != static_cast<std::ptrdiff_t>(members)) return 0;
    if (!seen.insert(host.front()).second) return 0;
  }
  return static_cast<int>(members);
}

HostSegments open_segments(Transport& transport) {
  auto own = SharedSegment::create();
  const auto addresses = gather(transport, own ? own->address() : SegmentAddress());
  std::vector<std::uint64_t> machines;
  for (const auto& each : addresses) machines.push_back(each.machine);
  const int members = members_of_each_host(machines);
  // Between hosts the sums of each are sent as they are made, which takes many transfers.
  if (members == 0 || (members < transport.size() && !transport.has_transfers())) return {};
  const int first = transport.rank() / members * members;
  std::vector<SharedSegment> opened;
  for (int rank = first; rank < first + members; ++rank) {
    auto segment = rank == transport.rank() ? std::optional(std::move(*own))
                                            : SharedSegment::open(addresses[static_cast<std::size_t>(rank)]);
    if (!segment) break;
    opened.push_back(std::move(*segment));
  }
  const bool has_all = opened.size() == static_cast<std::size_t>(members);
  const auto have_all = gather(transport, std::uint8_t{has_all});
  if (std::ranges::find(have_all, 0) != have_all.end()) return {};
  std::vector<SegmentAddress> of_host(addresses.begin() + first, addresses.begin() + first + members);
  return {.segments = std::make_unique<GroupSegments>(std::move(opened), std::move(of_host),
                                                      transport.rank() - first),
          .first = first};
}

}  // namespace lockstep::detail
