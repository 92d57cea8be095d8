#include "comm/collectives/peer_memory_collectives.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "comm/algorithms/ordered_reduction.h"

namespace lockstep::detail {
namespace {

// Slices of all ranks stay in a core's cache until they are reduced. Multiples of every element's size.
constexpr std::size_t kSliceBytes = 256 << 10;
constexpr std::size_t kLeastSliceBytes = 16 << 10;
constexpr std::size_t kPageBytes = 4096;

std::size_t slice_bytes(std::size_t ranks) {
  return std::max(kSliceBytes / ranks / kPageBytes * kPageBytes, kLeastSliceBytes);
}

// Of what will be written, before anything is shown: a lazy clone gets memory of its own here.
std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

std::int64_t signed_of(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

[[noreturn]] void refuse_size(std::size_t member, std::uint64_t shown, std::uint64_t expected) {
  throw std::runtime_error("rank " + std::to_string(member) + " of the group shows " + std::to_string(shown) +
                           " bytes, expected " + std::to_string(expected));
}

}  // namespace

std::int64_t PeerMemoryCollectives::perform(const Collective& collective, const Meetings& meetings) try {
  const auto& row = row_of(collective.kind);
  if (!row.run_in_peer_memory)
    throw std::logic_error(std::string("no collective in peer memory: ") + row.name);
  return (this->*row.run_in_peer_memory)(collective, meetings);
} catch (...) {
  seal_.revoke();
  throw;
}

// Each rank reduces a chunk, in its place; the last ones may be short or empty.
std::int64_t PeerMemoryCollectives::all_reduce(const Collective& collective, const Meetings& meetings) {
  const auto& tensor = collective.output;
  const auto element = static_cast<std::size_t>(tensor.element_size());
  const auto elements = static_cast<std::size_t>(tensor.numel());
  const auto length = (elements + members_.size() - 1) / members_.size();
  const auto chunk = [&](std::size_t member) {
    const auto begin = std::min(member * length, elements);
    return Range{begin * element, (std::min(begin + length, elements) - begin) * element};
  };
  auto* const bytes = bytes_of(tensor);
  const auto shown = show(tensor, meetings);
  const auto mine = chunk(own());
  reduce_range(shown, mine, tensor.scalar_type(), collective.op, bytes + mine.begin);
  meetings.next();
  for (std::size_t member = 0; member < shown.size(); ++member) {
    const auto range = chunk(member);
    if (member != own()) read(member, shown[member], range, bytes + range.begin);
  }
  meetings.next();
  return signed_of(tensor.nbytes() - mine.bytes + mine.bytes * (members_.size() - 1));
}

std::int64_t PeerMemoryCollectives::reduce_scatter(const Collective& collective, const Meetings& meetings) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  auto* const to = bytes_of(output);
  const auto shown = show(input, meetings);
  const Range mine{own() * output.nbytes(), output.nbytes()};
  reduce_range(shown, mine, output.scalar_type(), collective.op, to);
  meetings.next();
  return signed_of(input.nbytes() - mine.bytes);
}

std::int64_t PeerMemoryCollectives::all_gather(const Collective& collective, const Meetings& meetings) {
  const auto& output = collective.output;
  const auto& input = collective.input;
  auto* const rows = bytes_of(output);
  const auto shown = show(input, meetings);
  const Range all{0, input.nbytes()};
  for (std::size_t member = 0; member < shown.size(); ++member) {
    auto* const to = rows + member * all.bytes;
    if (member != own()) {
      read(member, shown[member], all, to);
    } else if (to != input.const_data_ptr()) {
      std::memcpy(to, input.const_data_ptr(), all.bytes);
    }
  }
  meetings.next();
  return signed_of(all.bytes * (members_.size() - 1));
}

std::int64_t PeerMemoryCollectives::broadcast(const Collective& collective, const Meetings& meetings) {
  const auto& tensor = collective.output;
  const auto root = static_cast<std::size_t>(collective.root);
  auto* const bytes = bytes_of(tensor);
  const auto shown = show(tensor, meetings);
  if (root != own()) read(root, shown[root], {0, tensor.nbytes()}, bytes);
  meetings.next();
  return root == own() ? signed_of(tensor.nbytes() * (members_.size() - 1)) : 0;
}

// Where the same tensor of each rank lies, which has the size of this one's.
PeerMemoryCollectives::Shown PeerMemoryCollectives::show(const at::Tensor& tensor,
                                                         const Meetings& meetings) const {
  const auto mine = memory_part(tensor.const_data_ptr(), tensor.nbytes());
  Shown shown(members_.size());
  shown[own()] = mine;
  meetings.first({reinterpret_cast<const char*>(&mine), sizeof mine}, [&](int member, std::string_view told) {
    auto& part = shown[static_cast<std::size_t>(member)];
    if (told.size() == sizeof part) std::memcpy(&part, told.data(), sizeof part);
  });
  for (std::size_t member = 0; member < shown.size(); ++member) {
    if (shown[member].bytes != mine.bytes) refuse_size(member, shown[member].bytes, mine.bytes);
  }
  return shown;
}

void PeerMemoryCollectives::reduce_range(const Shown& shown, Range range, at::ScalarType dtype, ReduceOp op,
                                         void* output) {
  const auto most = slice_bytes(shown.size());
  slices_.resize(most * shown.size());
  std::vector<const void*> rows(shown.size());
  for (std::size_t done = 0; done < range.bytes; done += most) {
    const Range slice{range.begin + done, std::min(most, range.bytes - done)};
    for (std::size_t member = 0; member < shown.size(); ++member) {
      if (member == own()) {
        rows[member] = reinterpret_cast<const std::byte*>(shown[member].address) + slice.begin;  // NOLINT
        continue;
      }
      auto* const copy = &slices_[member * most];
      read(member, shown[member], slice, copy);
      rows[member] = copy;
    }
    reduce_rows(rows, dtype, op, static_cast<std::byte*>(output) + done,
                slice.bytes / c10::elementSize(dtype));
  }
}

void PeerMemoryCollectives::read(std::size_t member, const MemoryPart& shown, Range range, void* to) const {
  const auto refusal =
      read_peer_memory(members_[member], {.address = shown.address + range.begin, .bytes = range.bytes}, to);
  if (refusal)
    throw std::runtime_error("the memory of rank " + std::to_string(member) +
                             " of the group cannot be read any more: " + refusal.message() +
                             "; LOCKSTEP_CMA=0 in the environment leaves all to sockets");
}

}  // namespace lockstep::detail
