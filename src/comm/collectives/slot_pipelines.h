// How tensors pass through the slots of segments, over any memory: each collective as stages that chunks go
// through, one behind the other. Tensors are bytes here; segment_collectives.h has them.
//
// Segments is a ChunkProtocol (shared_memory/chunk_protocol.h) that has, beside rank() and size():
// slot(member, chunk), where that member stages it; slot_bytes(); put(slot, from, bytes) and get(to, slot,
// bytes), which copy into a slot and out of one; and take(to, slot, bytes), a get() that leaves every line of
// the slot written. That is for lines that only this rank reads: they are the cheaper for who stages them
// next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace lockstep::detail::pipelines {

inline constexpr std::size_t kLine = 64;  // bytes of a cache line

struct Range {
  std::size_t begin;
  std::size_t bytes;
};

/// The slice of `bytes` bytes that is member number `member`'s; the last ones may be short or empty. Lines
/// are not shared.
inline Range slice_of(std::size_t bytes, int member, int size) {
  const auto members = static_cast<std::size_t>(size);
  const auto length = ((bytes + members - 1) / members + kLine - 1) / kLine * kLine;
  const auto begin = std::min(bytes, length * static_cast<std::size_t>(member));
  return {begin, std::min(length, bytes - begin)};
}

/// Calls body(member) for the others, the next one first: not all at the same one.
template <class Segments, class Body>
void for_others(const Segments& segments, const Body& body) {
  for (int i = 1; i < segments.size(); ++i) body((segments.rank() + i) % segments.size());
}

inline std::size_t chunks_in(std::size_t bytes, std::size_t most) { return (bytes + most - 1) / most; }

/// The chunks of one collective, of at most `most` bytes each.
template <class Segments>
class Chunks {
 public:
  Chunks(Segments& segments, std::size_t bytes, std::size_t most)
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

  Segments& segments_;
  std::size_t bytes_, most_;
  std::size_t count_;
};

/// The memory of tensors, one behind the other, as one range of bytes.
class Pieces {
 public:
  void add(std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    pieces_.push_back({.data = data, .begin = bytes_});
    bytes_ += bytes;
  }

  std::size_t bytes() const { return bytes_; }

  /// Calls use(part, its offset in the range, bytes) for each part of `range`.
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

  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
};

/// What is summed in place.
struct Summand {
  const Pieces& pieces;                    ///< only read where this rank gets no sums
  std::optional<int> root = std::nullopt;  ///< who gets the sums, if not all
  bool root_sums_alone = false;
};

/// Bytes of a chunk of sums, at most. Half a slot: more of it is still in a core's caches when its sums are
/// taken. Of many members slices would be so small that they took less time than their flags.
inline std::size_t chunk_of_sums(std::size_t slot_bytes, int members) {
  constexpr std::size_t kChunk = 128 << 10, kSlice = 32 << 10;
  return std::min(slot_bytes, std::max(kChunk, kSlice * static_cast<std::size_t>(members)));
}

/// Sums go into the slots of all, or of the root. `add_up` is called with (rows by rank, bytes, output,
/// whether all rows become the sum), where the rows of others lie in slots. Returns how many bytes were
/// handed over.
template <class Segments, class AddUp, class AwaitLate>
std::size_t sum(Segments& all, const Summand& summand, const AddUp& add_up, const AwaitLate& await_late) {
  const auto root = summand.root;
  const auto& pieces = summand.pieces;
  const bool is_for_all = !root, gets_sums = is_for_all || *root == all.rank();
  std::vector<std::byte*> rows(static_cast<std::size_t>(all.size()));
  std::size_t handed_over = 0;
  const auto slice_for = [&](int member, std::size_t bytes) {
    if (is_for_all || !summand.root_sums_alone) return slice_of(bytes, member, all.size());
    return Range{0, member == *root ? bytes : 0};
  };

  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    auto* const slot = all.slot(all.rank(), chunk);
    for_others(all, [&](int member) {
      const auto slice = slice_for(member, range.bytes);
      pieces.for_each({range.begin + slice.begin, slice.bytes},
                      [&](const std::byte* part, std::size_t offset, std::size_t bytes) {
                        all.put(slot + slice.begin + offset, part, bytes);
                      });
      handed_over += slice.bytes;
    });
    all.post_staged(chunk);
  };
  const auto add_slice = [&](std::uint64_t chunk, Range range) {
    const auto slice = slice_for(all.rank(), range.bytes);
    for_others(all, [&](int member) { all.await_staged(member, chunk, await_late); });
    pieces.for_each(
        {range.begin + slice.begin, slice.bytes}, [&](std::byte* own, std::size_t offset, std::size_t bytes) {
          for (int member = 0; member < all.size(); ++member)
            rows[static_cast<std::size_t>(member)] = all.slot(member, chunk) + slice.begin + offset;
          rows[static_cast<std::size_t>(all.rank())] = own;
          auto* const output = gets_sums ? own : rows[static_cast<std::size_t>(*root)];
          add_up(rows, bytes, output, is_for_all);
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
                        all.get(part, slot + slice.begin + offset, bytes);
                      });
    });
  };
  Chunks(all, pieces.bytes(), chunk_of_sums(all.slot_bytes(), all.size())).run(stage, add_slice, take_sums);
  return handed_over;
}

/// The sum of the ranks' parts number rank() of `from`, which holds one of `part` bytes for each member. A
/// slot holds a piece of each member's part, at multiples of the same length.
template <class Segments, class AddUp, class AwaitLate>
void sum_parts(Segments& all, std::byte* to, std::byte* from, std::size_t part, const AddUp& add_up,
               const AwaitLate& await_late) {
  const auto piece = all.slot_bytes() / static_cast<std::size_t>(all.size()) / kLine * kLine;
  const auto begin_of = [](int member, std::size_t bytes) {
    return static_cast<std::size_t>(member) * bytes;
  };
  std::vector<std::byte*> rows(static_cast<std::size_t>(all.size()));

  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    auto* const slot = all.slot(all.rank(), chunk);
    for_others(all, [&](int member) {
      all.put(slot + begin_of(member, piece), from + begin_of(member, part) + range.begin, range.bytes);
    });
    all.post_staged(chunk);
  };
  const auto add_piece = [&](std::uint64_t chunk, Range range) {
    for (int member = 0; member < all.size(); ++member)
      rows[static_cast<std::size_t>(member)] = all.slot(member, chunk) + begin_of(all.rank(), piece);
    rows[static_cast<std::size_t>(all.rank())] = from + begin_of(all.rank(), part) + range.begin;
    for_others(all, [&](int member) { all.await_staged(member, chunk, await_late); });
    add_up(rows, range.bytes, to + range.begin, false);
    all.post_finished(chunk);
  };
  Chunks(all, part, piece).run(stage, add_piece);
}

/// The part of `range` that is in `pieces`.
inline Range clipped(const Pieces& pieces, Range range) {
  const auto begin = std::min(range.begin, pieces.bytes());
  return {begin, std::min(range.bytes, pieces.bytes() - begin)};
}

inline std::size_t most_bytes(const std::vector<Pieces>& all) {
  std::size_t most = 0;
  for (const auto& each : all) most = std::max(most, each.bytes());
  return most;
}

/// The same of ranges of any lengths, one for each member to sum, the same ones on all of them. `add_up` is
/// called with (rows by rank, where they begin in this member's range, bytes), and keeps the sum.
template <class Segments, class AddUp, class AwaitLate>
void sum_ranges(Segments& all, const std::vector<Pieces>& ranges, const AddUp& add_up,
                const AwaitLate& await_late) {
  const auto size = static_cast<std::size_t>(all.size()), own = static_cast<std::size_t>(all.rank());
  const auto piece = all.slot_bytes() / size / kLine * kLine;
  std::vector<std::byte*> rows(size);

  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    auto* const slot = all.slot(all.rank(), chunk);
    for_others(all, [&](int member) {
      const auto& pieces = ranges[static_cast<std::size_t>(member)];
      const auto part = clipped(pieces, range);
      if (part.bytes == 0) return;
      pieces.for_each(part, [&](const std::byte* from, std::size_t offset, std::size_t bytes) {
        all.put(slot + static_cast<std::size_t>(member) * piece + offset, from, bytes);
      });
    });
    all.post_staged(chunk);
  };
  const auto add_piece = [&](std::uint64_t chunk, Range range) {
    for_others(all, [&](int member) { all.await_staged(member, chunk, await_late); });
    const auto part = clipped(ranges[own], range);
    if (part.bytes > 0) {
      ranges[own].for_each(part, [&](std::byte* from, std::size_t offset, std::size_t bytes) {
        for (std::size_t member = 0; member < size; ++member)
          rows[member] = all.slot(static_cast<int>(member), chunk) + own * piece + offset;
        rows[own] = from;
        add_up(rows, part.begin + offset, bytes);
      });
    }
    all.post_finished(chunk);
  };
  Chunks(all, most_bytes(ranges), piece).run(stage, add_piece);
}

/// Copies out of a slot that all others read: of two members that is one.
template <class Segments>
void get_or_take(const Segments& all, std::byte* to, std::byte* slot, std::size_t bytes) {
  all.size() == 2 ? all.take(to, slot, bytes) : all.get(to, slot, bytes);
}

/// Every member's `bytes` bytes go from its `from` to `to` on all others, by rank. This rank's own are not
/// written there.
template <class Segments, class AwaitLate>
void gather(Segments& all, std::byte* to, const std::byte* from, std::size_t bytes,
            const AwaitLate& await_late) {
  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    all.put(all.slot(all.rank(), chunk), from + range.begin, range.bytes);
    all.post_staged(chunk);
  };
  const auto take = [&](std::uint64_t chunk, Range range) {
    for_others(all, [&](int member) {
      all.await_staged(member, chunk, await_late);
      get_or_take(all, to + static_cast<std::size_t>(member) * bytes + range.begin, all.slot(member, chunk),
                  range.bytes);
    });
    all.post_finished(chunk);
  };
  Chunks(all, bytes, all.slot_bytes()).run(stage, take);
}

/// Every member's range goes to its place on all others, where it has the same length.
template <class Segments, class AwaitLate>
void gather_ranges(Segments& all, const std::vector<Pieces>& ranges, const AwaitLate& await_late) {
  const auto stage = [&](std::uint64_t chunk, Range range) {
    all.await_slot(chunk, await_late);
    const auto& own = ranges[static_cast<std::size_t>(all.rank())];
    auto* const slot = all.slot(all.rank(), chunk);
    const auto part = clipped(own, range);
    if (part.bytes > 0)
      own.for_each(part, [&](const std::byte* from, std::size_t offset, std::size_t bytes) {
        all.put(slot + offset, from, bytes);
      });
    all.post_staged(chunk);
  };
  const auto take = [&](std::uint64_t chunk, Range range) {
    for_others(all, [&](int member) {
      all.await_staged(member, chunk, await_late);
      const auto& pieces = ranges[static_cast<std::size_t>(member)];
      const auto part = clipped(pieces, range);
      if (part.bytes == 0) return;
      pieces.for_each(part, [&](std::byte* to, std::size_t offset, std::size_t bytes) {
        all.get(to, all.slot(member, chunk) + offset, bytes);
      });
    });
    all.post_finished(chunk);
  };
  Chunks(all, most_bytes(ranges), all.slot_bytes()).run(stage, take);
}

/// The root's bytes go to all.
template <class Segments, class AwaitLate>
void broadcast(Segments& all, std::byte* data, std::size_t bytes, int root, const AwaitLate& await_late) {
  const bool is_root = all.rank() == root;
  const auto stage = [&](std::uint64_t chunk, Range range) {
    if (!is_root) return;
    all.await_slot(chunk, await_late);
    all.put(all.slot(all.rank(), chunk), data + range.begin, range.bytes);
    all.post_staged(chunk);
  };
  const auto take = [&](std::uint64_t chunk, Range range) {
    if (!is_root) {
      all.await_staged(root, chunk, await_late);
      get_or_take(all, data + range.begin, all.slot(root, chunk), range.bytes);
    }
    all.post_finished(chunk);
  };
  Chunks(all, bytes, all.slot_bytes()).run(stage, take);
}

/// Bytes of this rank for, or from, a member.
struct Part {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};
using Parts = std::vector<Part>;  // by rank

/// Parts of different sizes, each member's to each other one. Returns how many bytes were handed over.
///
/// Slots as in sum_parts(), behind a line that says how many chunks their rank has: the first chunk goes
/// ahead, since members may have parts of different sizes, and all take part in as many as the largest needs.
template <class Segments, class AwaitLate>
std::size_t exchange(Segments& all, const Parts& to, const Parts& from, const AwaitLate& await_late) {
  const auto size = static_cast<std::size_t>(all.size()), own = static_cast<std::size_t>(all.rank());
  const auto most = (all.slot_bytes() - kLine) / size / kLine * kLine;
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
    if (number == 0) all.put(slot, reinterpret_cast<const std::byte*>(&chunks), sizeof chunks);
    for_others(all, [&](int member) {
      const auto& part = to[static_cast<std::size_t>(member)];
      const auto piece = piece_of(part, number);
      if (piece.bytes > 0) all.put(piece_in(slot, member), part.data + piece.begin, piece.bytes);
    });
    all.post_staged(first + number);
  };
  const auto take = [&](std::uint64_t number) {
    auto most_chunks = chunks;
    for_others(all, [&](int member) {
      all.await_staged(member, first + number, await_late);
      auto* const slot = all.slot(member, first + number);
      std::uint64_t theirs = 0;
      if (number == 0) all.get(reinterpret_cast<std::byte*>(&theirs), slot, sizeof theirs);
      most_chunks = std::max(most_chunks, theirs);
      const auto& part = from[static_cast<std::size_t>(member)];
      const auto piece = piece_of(part, number);
      if (piece.bytes > 0) all.take(part.data + piece.begin, piece_in(slot, all.rank()), piece.bytes);
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
  return handed_over;
}

}  // namespace lockstep::detail::pipelines
