#include "comm/near_exchange.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace lockstep::detail {
namespace {

// Slices of all ranks stay in a core's cache until they are taken.
constexpr std::size_t kSliceBytes = 256 << 10;
constexpr std::size_t kLeastSliceBytes = 16 << 10;
constexpr std::size_t kPageBytes = 4096;

std::size_t slice_bytes(std::size_t ranks) {
  return std::max(kSliceBytes / ranks / kPageBytes * kPageBytes, kLeastSliceBytes);
}

[[noreturn]] void refuse_size(std::size_t member, std::uint64_t offered, std::uint64_t expected) {
  throw std::runtime_error("rank " + std::to_string(member) + " of the group offers " +
                           std::to_string(offered) + " bytes, expected " + std::to_string(expected));
}

void read(const MemoryOffer& offer, std::size_t begin, std::size_t bytes, void* to) {
  if (!read_peer_memory(offer, begin, bytes, to))
    throw std::runtime_error("the memory of process " + std::to_string(offer.owner.process) +
                             " may not be read any more");
}

}  // namespace

bool NearExchange::can_read(std::span<const MemoryOwner> members) {
  members_.assign(members.begin(), members.end());
  return std::ranges::all_of(members_, [&](const MemoryOwner& member) {
    return member.machine != 0 && member.machine == members_[own()].machine && can_read_memory_of(member);
  });
}

bool NearExchange::takes(std::size_t bytes) const {
  return is_open_ && meet_ && bytes >= kLeastPeerMemoryBytes;
}

void NearExchange::run(std::span<const at::Tensor> to, std::span<const at::Tensor> from) try {
  std::vector<std::size_t> sizes;
  for (const auto& part : from) sizes.push_back(part.nbytes());
  const auto offers = offers_for(to, sizes);
  for (std::size_t member = 0; member < from.size(); ++member) {
    auto* const target = from[member].mutable_data_ptr();
    if (member != own()) {
      read(offers[member], 0, sizes[member], target);
    } else if (target != to[member].const_data_ptr()) {
      std::memcpy(target, to[member].const_data_ptr(), sizes[member]);
    }
  }
  meet_({}, {});
} catch (...) {
  seal_.revoke();
  throw;
}

void NearExchange::run(std::span<const at::Tensor> to, const TakeSlice& take) try {
  const std::vector<std::size_t> sizes(to.size(), to[own()].nbytes());
  read_slices(offers_for(to, sizes), to[own()], take);
  meet_({}, {});
} catch (...) {
  seal_.revoke();
  throw;
}

// Where each member has its part for this rank, of sizes[member] bytes.
std::vector<MemoryOffer> NearExchange::offers_for(std::span<const at::Tensor> to,
                                                  std::span<const std::size_t> sizes) {
  std::vector<Part> parts;
  for (const auto& part : to)
    parts.push_back({reinterpret_cast<std::uint64_t>(part.const_data_ptr()), part.nbytes()});  // NOLINT
  std::vector<MemoryOffer> offers(to.size());
  const auto note = [&](std::size_t member, std::string_view told) {
    Part part{};
    if (told.size() == parts.size() * sizeof(Part))
      std::memcpy(&part, told.data() + own() * sizeof(Part), sizeof part);
    offers[member] = {.owner = members_[member], .address = part.address, .bytes = part.bytes};
  };
  meet_({reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(Part)},
        [&](int member, std::string_view told) { note(static_cast<std::size_t>(member), told); });
  for (std::size_t member = 0; member < offers.size(); ++member) {
    if (member != own() && offers[member].bytes != sizes[member])
      refuse_size(member, offers[member].bytes, sizes[member]);
  }
  return offers;
}

void NearExchange::read_slices(std::span<const MemoryOffer> offers, const at::Tensor& mine,
                               const TakeSlice& take) {
  const auto most = slice_bytes(offers.size());
  slices_.resize(most * offers.size());
  std::vector<const void*> rows(offers.size());
  for (std::size_t begin = 0; begin < mine.nbytes(); begin += most) {
    const auto bytes = std::min(most, mine.nbytes() - begin);
    for (std::size_t member = 0; member < offers.size(); ++member) {
      if (member == own()) {
        rows[member] = static_cast<const std::byte*>(mine.const_data_ptr()) + begin;
        continue;
      }
      auto* const slice = &slices_[member * most];
      read(offers[member], begin, bytes, slice);
      rows[member] = slice;
    }
    take({.begin = begin, .bytes = bytes, .rows = rows});
  }
}

}  // namespace lockstep::detail
