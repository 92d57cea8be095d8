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

}  // namespace

bool NearExchange::takes(std::size_t bytes) const {
  return !members_.empty() && meet_ && bytes >= kLeastPeerMemoryBytes;
}

void NearExchange::run(std::span<const at::Tensor> to, std::span<const at::Tensor> from) try {
  std::vector<std::size_t> sizes;
  for (const auto& part : from) sizes.push_back(part.nbytes());
  const auto parts = parts_for_me(to, sizes);
  for (std::size_t member = 0; member < from.size(); ++member) {
    auto* const target = from[member].mutable_data_ptr();
    if (member != own()) {
      read(member, parts[member], target);
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
  read_slices(parts_for_me(to, sizes), to[own()], take);
  meet_({}, {});
} catch (...) {
  seal_.revoke();
  throw;
}

// Where each member has its part for this rank, of sizes[member] bytes.
std::vector<MemoryPart> NearExchange::parts_for_me(std::span<const at::Tensor> to,
                                                   std::span<const std::size_t> sizes) {
  std::vector<MemoryPart> mine, theirs(to.size());
  for (const auto& part : to) mine.push_back(memory_part(part.const_data_ptr(), part.nbytes()));
  const auto bytes = mine.size() * sizeof(MemoryPart);
  meet_({reinterpret_cast<const char*>(mine.data()), bytes}, [&](int member, std::string_view told) {
    auto& part = theirs[static_cast<std::size_t>(member)];
    if (told.size() == bytes) std::memcpy(&part, told.data() + own() * sizeof part, sizeof part);
  });
  for (std::size_t member = 0; member < theirs.size(); ++member) {
    if (member != own() && theirs[member].bytes != sizes[member])
      refuse_size(member, theirs[member].bytes, sizes[member]);
  }
  return theirs;
}

void NearExchange::read_slices(std::span<const MemoryPart> parts, const at::Tensor& mine,
                               const TakeSlice& take) {
  const auto most = slice_bytes(parts.size());
  slices_.resize(most * parts.size());
  std::vector<const void*> rows(parts.size());
  for (std::size_t begin = 0; begin < mine.nbytes(); begin += most) {
    const auto bytes = std::min(most, mine.nbytes() - begin);
    for (std::size_t member = 0; member < parts.size(); ++member) {
      if (member == own()) {
        rows[member] = static_cast<const std::byte*>(mine.const_data_ptr()) + begin;
        continue;
      }
      auto* const slice = &slices_[member * most];
      read(member, {.address = parts[member].address + begin, .bytes = bytes}, slice);
      rows[member] = slice;
    }
    take({.begin = begin, .bytes = bytes, .rows = rows});
  }
}

void NearExchange::read(std::size_t member, const MemoryPart& part, void* to) const {
  const auto refusal = read_peer_memory(members_[member], part, to);
  if (refusal)
    throw std::runtime_error("the memory of rank " + std::to_string(member) +
                             " of the group cannot be read any more: " + refusal.message() +
                             "; LOCKSTEP_CMA=0 in the environment leaves all to sockets");
}

}  // namespace lockstep::detail
