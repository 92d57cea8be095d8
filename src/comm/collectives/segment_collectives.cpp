#include "comm/collectives/segment_collectives.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include <c10/util/SmallVector.h>

#include "comm/algorithms/ordered_reduction.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kLine = 64;  // bytes of a cache line

// Of a reduction: of more it pays that each member sums a slice.
constexpr std::size_t kMostForRootAlone = 32 << 10;

// What is summed at once, and copied to all slots while it is in the first-level cache.
constexpr std::size_t kBlockBytes = 4 << 10;

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }
const std::byte* const_bytes_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

std::int64_t signed_of(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

struct Range {
  std::size_t begin;
  std::size_t bytes;
};

// The slice of `bytes` bytes that is member number `member`'s; the last ones may be short or empty. Lines are
// not shared.
Range slice_of(std::size_t bytes, int member, int size) {
  const auto members = static_cast<std::size_t>(size);
  const auto length = ((bytes + members - 1) / members + kLine - 1) / kLine * kLine;
  const auto begin = std::min(bytes, length * static_cast<std::size_t>(member));
  return {begin, std::min(length, bytes - begin)};
}

// Calls body(member) for the others, the next one first: not all at the same one.
template <class Body>
void for_others(const GroupSegments& segments, const Body& body) {
  for (int i = 1; i < segments.size(); ++i) body((segments.rank() + i) % segments.size());
}

// The memory of tensors, one behind the other, as one range of bytes.
class Pieces {
 public:
  void add(std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    pieces_.push_back({.data = data, .begin = bytes_});
    bytes_ += bytes;
  }

  std::size_t bytes() const { return bytes_; }

  /// Calls use(part, offset in the range, bytes) for each part of `range`.
  template <class Use>
  void for_each(Range range, const Use& use) const {
    const auto after = std::ranges::upper_bound(pieces_, range.begin, {}, &Piece::begin);
    auto piece = static_cast<std::size_t>(after - pieces_.begin()) - 1;
    for (std::size_t done = 0; done < range.bytes; ++piece) {
      const auto end = piece + 1 < pieces_.size() ? pieces_[piece + 1].begin : bytes_;
      const auto inside = range.begin + done - pieces_[piece].begin;
      const auto bytes = std::min(range.bytes - done, end - range.begin - done);
      use(pieces_[piece].data + inside, done, bytes);
      done += bytes;
    }
  }

 private:
  struct Piece {
    std::byte* data;
    std::size_t begin;
  };

  c10::SmallVector<Piece, 8> pieces_;
  std::size_t bytes_ = 0;
};

// Sums rows in the order of the ranks.
class RowSum {
 public:
  RowSum(at::ScalarType dtype, ReduceOp op) : dtype_(dtype), op_(op), element_(c10::elementSize(dtype)) {}

  /// `output` may be one of the rows; with `is_for_all` the others become the sum, too.
  void add_up(const std::vector<std::byte*>& rows, std::size_t bytes, std::byte* output,
              bool is_for_all = false) {
    for (std::size_t done = 0; done < bytes; done += kBlockBytes) {
      const auto size = std::min(kBlockBytes, bytes - done);
      block_.clear();
      for (auto* row : rows) block_.push_back(row + done);
      reduce_rows(block_, dtype_, op_, output + done, size / element_);
      if (!is_for_all) continue;
      for (auto* row : rows)
        if (row != output) std::memcpy(row + done, output + done, size);
    }
  }

 private:
  at::ScalarType dtype_;
  ReduceOp op_;
  std::size_t element_;
  std::vector<const void*> block_;
};

std::size_t chunks_in(std::size_t bytes, std::size_t most) { return (bytes + most - 1) / most; }

// The chunks of one collective, of at most `most` bytes each.
class Chunks {
 public:
  Chunks(GroupSegments& segments, std::size_t bytes, std::size_t most)
      : segments_(segments), bytes_(bytes), most_(most), count_(chunks_in(bytes, most)) {}

  /// Runs the stages, which take (number of the chunk, its range), one behind the other: each is a chunk
  /// later than the one before, so that ranks rarely wait for each other.
  template <class... Stage>
  void run(const Stage&... stages) {
    for (std::size_t step = 0; step + 1 < count_ + sizeof...(stages); ++step) {
      std::size_t behind = 0;
      (run_stage(stages, step, behind++), ...);
    }
    segments_.add_chunks(count_);
  }

 private:
  template <class Stage>
  void run_stage(const Stage& stage, std::size_t step, std::size_t behind) {
    if (step < behind || step - behind >= count_) return;
    const auto begin = (step - behind) * most_;
    stage(segments_.chunks() + step - behind + 1, Range{begin, std::min(most_, bytes_ - begin)});
  }

  GroupSegments& segments_;
  std::size_t bytes_, most_;
  std::size_t count_;
};

}  // namespace

std::int64_t SegmentCollectives::perform(const Collective& collective, AwaitLate await_late) {
  return (this->*row_of(collective.kind).run_in_segments)(collective, await_late);
}

std::int64_t SegmentCollectives::all_reduce(const Collective& collective, AwaitLate await_late) {
  return sum(collective, std::nullopt, await_late);
}

std::int64_t SegmentCollectives::reduce(const Collective& collective, AwaitLate await_late) {
  return sum(collective, collective.root, await_late);
}

// Sums go into the slots of all, or of the root, which sums small tensors alone.
std::int64_t SegmentCollectives::sum(const Collective& collective, std::optional<int> root,
                                     AwaitLate await_late) {
  auto& all = *segments_;
  const bool is_for_all = !root, gets_sums = is_for_all || *root == all.rank();
  Pieces pieces;
  const auto add = [&](const at::Tensor& tensor) {
    pieces.add(gets_sums ? bytes_of(tensor) : const_cast<std::byte*>(const_bytes_of(tensor)),
               tensor.nbytes());
  };
  if (collective.output.defined()) add(collective.output);
  std::ranges::for_each(collective.outputs, add);
  std::vector<std::byte*> rows(static_cast<std::size_t>(all.size()));
  RowSum row_sum(operand_of(collective).scalar_type(), collective.op);
  std::size_t handed_over = 0;
  const auto slice_for = [&](int member, std::size_t bytes) {
    if (is_for_all || pieces.bytes() > kMostForRootAlone) return slice_of(bytes, member, all.size());
    return Range{0, member == *root ? bytes : 0};
  };

  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    auto* const slot = all.slot(all.rank(), chunk);
    for_others(all, [&](int member) {
      const auto slice = slice_for(member, range.bytes);
      pieces.for_each({range.begin + slice.begin, slice.bytes},
                      [&](const std::byte* part, std::size_t offset, std::size_t bytes) {
                        std::memcpy(slot + slice.begin + offset, part, bytes);
                      });
      handed_over += slice.bytes;
    });
    all.post_staged(chunk);
  };
  const auto add_up = [&](std::uint64_t chunk, Range range) {
    const auto slice = slice_for(all.rank(), range.bytes);
    for_others(all, [&](int member) { all.await_staged(member, chunk, await_late); });
    pieces.for_each(
        {range.begin + slice.begin, slice.bytes}, [&](std::byte* own, std::size_t offset, std::size_t bytes) {
          for (int member = 0; member < all.size(); ++member)
            rows[static_cast<std::size_t>(member)] = all.slot(member, chunk) + slice.begin + offset;
          rows[static_cast<std::size_t>(all.rank())] = own;
          auto* const output = gets_sums ? own : rows[static_cast<std::size_t>(*root)];
          row_sum.add_up(rows, bytes, output, is_for_all);
        });
    handed_over += slice.bytes * (is_for_all ? rows.size() - 1 : gets_sums ? 0 : 1);
    all.post_finished(chunk);
  };
  const auto take_sums = [&](std::uint64_t chunk, Range range) {
    if (!gets_sums) return;
    const auto* const slot = all.slot(all.rank(), chunk);
    for_others(all, [&](int member) {
      all.await_finished(member, chunk, await_late);
      const auto slice = slice_for(member, range.bytes);
      pieces.for_each({range.begin + slice.begin, slice.bytes},
                      [&](std::byte* part, std::size_t offset, std::size_t bytes) {
                        std::memcpy(part, slot + slice.begin + offset, bytes);
                      });
    });
  };
  Chunks(all, pieces.bytes(), kSlotBytes).run(stage, add_up, take_sums);
  return signed_of(handed_over);
}

// A slot holds a piece of each member's part, at multiples of the same length.
std::int64_t SegmentCollectives::reduce_scatter(const Collective& collective, AwaitLate await_late) {
  auto& all = *segments_;
  const auto& output = collective.output;
  const auto& input = collective.input;
  const auto part = output.nbytes();
  const auto piece = kSlotBytes / static_cast<std::size_t>(all.size()) / kLine * kLine;
  auto* const to = bytes_of(output);
  // Of the input nothing is written: a row may only be read where the sum is not for all.
  auto* const from = const_cast<std::byte*>(const_bytes_of(input));
  const auto begin_of = [](int member, std::size_t bytes) {
    return static_cast<std::size_t>(member) * bytes;
  };
  std::vector<std::byte*> rows(static_cast<std::size_t>(all.size()));
  RowSum sum(output.scalar_type(), collective.op);

  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    auto* const slot = all.slot(all.rank(), chunk);
    for_others(all, [&](int member) {
      std::memcpy(slot + begin_of(member, piece), from + begin_of(member, part) + range.begin, range.bytes);
    });
    all.post_staged(chunk);
  };
  const auto add_up = [&](std::uint64_t chunk, Range range) {
    for (int member = 0; member < all.size(); ++member)
      rows[static_cast<std::size_t>(member)] = all.slot(member, chunk) + begin_of(all.rank(), piece);
    rows[static_cast<std::size_t>(all.rank())] = from + begin_of(all.rank(), part) + range.begin;
    for_others(all, [&](int member) { all.await_staged(member, chunk, await_late); });
    sum.add_up(rows, range.bytes, to + range.begin);
    all.post_finished(chunk);
  };
  Chunks(all, part, piece).run(stage, add_up);
  return signed_of(input.nbytes() - part);
}

std::int64_t SegmentCollectives::all_gather(const Collective& collective, AwaitLate await_late) {
  auto& all = *segments_;
  const auto bytes = collective.input.nbytes();
  const auto* const from = const_bytes_of(collective.input);
  auto* const to = bytes_of(collective.output);
  auto* const own = to + static_cast<std::size_t>(all.rank()) * bytes;

  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    std::memcpy(all.slot(all.rank(), chunk), from + range.begin, range.bytes);
    all.post_staged(chunk);
  };
  const auto take = [&](std::uint64_t chunk, Range range) {
    for_others(all, [&](int member) {
      all.await_staged(member, chunk, await_late);
      std::memcpy(to + static_cast<std::size_t>(member) * bytes + range.begin, all.slot(member, chunk),
                  range.bytes);
    });
    all.post_finished(chunk);
  };
  Chunks(all, bytes, kSlotBytes).run(stage, take);
  if (bytes > 0 && own != from) std::memcpy(own, from, bytes);
  return signed_of(bytes * static_cast<std::size_t>(all.size() - 1));
}

std::int64_t SegmentCollectives::broadcast(const Collective& collective, AwaitLate await_late) {
  auto& all = *segments_;
  const auto& tensor = collective.output;
  const bool is_root = all.rank() == collective.root;
  auto* const data = bytes_of(tensor);

  const auto stage = [&](std::uint64_t chunk, Range range) {
    if (!is_root) return;
    all.await_slot(chunk, await_late);
    std::memcpy(all.slot(all.rank(), chunk), data + range.begin, range.bytes);
    all.post_staged(chunk);
  };
  const auto take = [&](std::uint64_t chunk, Range range) {
    if (!is_root) {
      all.await_staged(collective.root, chunk, await_late);
      std::memcpy(data + range.begin, all.slot(collective.root, chunk), range.bytes);
    }
    all.post_finished(chunk);
  };
  Chunks(all, tensor.nbytes(), kSlotBytes).run(stage, take);
  return is_root ? signed_of(tensor.nbytes() * static_cast<std::size_t>(all.size() - 1)) : 0;
}

namespace {

// Bytes of this rank for, or from, a member.
struct Part {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};
using Parts = std::vector<Part>;  // by rank

Parts no_parts(const GroupSegments& segments) { return Parts(static_cast<std::size_t>(segments.size())); }

Part part_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  return {.data = const_cast<std::byte*>(const_bytes_of(tensor)), .bytes = tensor.nbytes()};
}

Parts parts_of(const std::vector<at::Tensor>& tensors) {
  Parts parts;
  for (const auto& tensor : tensors) parts.push_back(part_of(tensor));
  return parts;
}

Parts parts_of(const at::Tensor& tensor, const std::vector<std::int64_t>& bytes) {
  Parts parts;
  auto* next = part_of(tensor).data;
  for (const auto count : bytes) {
    parts.push_back({.data = next, .bytes = static_cast<std::size_t>(count)});
    next += count;
  }
  return parts;
}

// Slots as in a reduce-scatter, behind a line that says how many chunks their rank has: the first chunk goes
// ahead, since members may have parts of different sizes, and all take part in as many as the largest needs.
std::int64_t exchange(GroupSegments& all, const Parts& to, const Parts& from,
                      GroupSegments::AwaitLate await_late) {
  const auto size = static_cast<std::size_t>(all.size()), own = static_cast<std::size_t>(all.rank());
  const auto most = (kSlotBytes - kLine) / size / kLine * kLine;
  const auto piece_in = [&](std::byte* slot, int member) {
    return slot + kLine + static_cast<std::size_t>(member) * most;
  };
  std::uint64_t chunks = 1;
  std::size_t handed_over = 0;
  for (std::size_t member = 0; member < size; ++member) {
    if (member == own) continue;
    chunks = std::max<std::uint64_t>(chunks, chunks_in(to[member].bytes, most));
    handed_over += to[member].bytes;
  }
  const auto piece_of = [&](const Part& part, std::uint64_t number) {
    const auto begin = std::min<std::size_t>(number * most, part.bytes);
    return Range{begin, std::min(most, part.bytes - begin)};
  };
  const auto first = all.chunks() + 1;
  const auto stage = [&](std::uint64_t number) {
    all.await_slot(first + number, await_late);
    auto* const slot = all.slot(all.rank(), first + number);
    if (number == 0) std::memcpy(slot, &chunks, sizeof chunks);
    for_others(all, [&](int member) {
      const auto& part = to[static_cast<std::size_t>(member)];
      const auto piece = piece_of(part, number);
      if (piece.bytes > 0) std::memcpy(piece_in(slot, member), part.data + piece.begin, piece.bytes);
    });
    all.post_staged(first + number);
  };
  const auto take = [&](std::uint64_t number) {
    auto most_chunks = chunks;
    for_others(all, [&](int member) {
      all.await_staged(member, first + number, await_late);
      auto* const slot = all.slot(member, first + number);
      std::uint64_t theirs = 0;
      if (number == 0) std::memcpy(&theirs, slot, sizeof theirs);
      most_chunks = std::max(most_chunks, theirs);
      const auto& part = from[static_cast<std::size_t>(member)];
      const auto piece = piece_of(part, number);
      if (piece.bytes > 0) std::memcpy(part.data + piece.begin, piece_in(slot, all.rank()), piece.bytes);
    });
    chunks = most_chunks;
    all.post_finished(first + number);
  };
  stage(0);
  take(0);
  for (std::uint64_t number = 1; number <= chunks; ++number) {
    if (number < chunks) stage(number);
    if (number > 1) take(number - 1);
  }
  all.add_chunks(chunks);
  if (from[own].bytes > 0 && from[own].data != to[own].data)
    std::memcpy(from[own].data, to[own].data, from[own].bytes);
  return signed_of(handed_over);
}

}  // namespace

std::int64_t SegmentCollectives::all_gather_list(const Collective& collective, AwaitLate await_late) {
  return exchange(*segments_, Parts(collective.outputs.size(), part_of(collective.input)),
                  parts_of(collective.outputs), await_late);
}

std::int64_t SegmentCollectives::gather(const Collective& collective, AwaitLate await_late) {
  auto to = no_parts(*segments_);
  to[static_cast<std::size_t>(collective.root)] = part_of(collective.input);
  const bool is_root = segments_->rank() == collective.root;
  return exchange(*segments_, to, is_root ? parts_of(collective.outputs) : no_parts(*segments_), await_late);
}

std::int64_t SegmentCollectives::scatter(const Collective& collective, AwaitLate await_late) {
  auto from = no_parts(*segments_);
  from[static_cast<std::size_t>(collective.root)] = part_of(collective.output);
  const bool is_root = segments_->rank() == collective.root;
  return exchange(*segments_, is_root ? parts_of(collective.inputs) : no_parts(*segments_), from, await_late);
}

std::int64_t SegmentCollectives::all_to_all(const Collective& collective, AwaitLate await_late) {
  const int size = segments_->size();
  return exchange(
      *segments_, parts_of(collective.input, bytes_by_rank(collective.input, collective.input_splits, size)),
      parts_of(collective.output, bytes_by_rank(collective.output, collective.output_splits, size)),
      await_late);
}

std::int64_t SegmentCollectives::all_to_all_list(const Collective& collective, AwaitLate await_late) {
  return exchange(*segments_, parts_of(collective.inputs), parts_of(collective.outputs), await_late);
}

}  // namespace lockstep::detail
