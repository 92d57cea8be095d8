#include "comm/algorithms/ordered_reduction.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "comm/algorithms/reduce_rows.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kOneRoundBytes = 256 << 10;  // of all ranks together: below, one exchange beats two
constexpr std::int64_t kPieceBytes = 8 << 20;       // bounds scratch memory, keeps it in the cache

std::size_t unsigned_of(std::int64_t number) { return static_cast<std::size_t>(number); }

}  // namespace

at::Tensor Scratch::get(std::int64_t bytes) {
  if (!memory_.defined() || memory_.numel() < bytes) memory_ = at::empty({bytes}, at::kByte);
  return memory_.narrow(0, 0, bytes);
}

// A few kilobytes cost a round trip, whatever their number.
bool OrderedReduction::fits_one_round(const at::Tensor& flat) const {
  return static_cast<std::int64_t>(flat.nbytes()) * transport_.size() <= kOneRoundBytes;
}

// A multiple of the number of ranks, so that only the last piece has uneven chunks.
std::int64_t OrderedReduction::elements_of_piece(const at::Tensor& flat) const {
  return std::max<std::int64_t>(1, kPieceBytes / flat.element_size() / transport_.size()) * transport_.size();
}

// One chunk per rank; the last ones may be short or empty.
OrderedReduction::Parts OrderedReduction::chunks_of(const at::Tensor& flat) const {
  const std::int64_t ranks = transport_.size();
  const auto length = (flat.numel() + ranks - 1) / ranks;
  Parts chunks;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto begin = std::min(rank * length, flat.numel());
    chunks.push_back(flat.slice(0, begin, begin + length));
  }
  return chunks;
}

OrderedReduction::Parts OrderedReduction::to_others(const at::Tensor& tensor) const {
  return Parts(unsigned_of(transport_.size()), tensor);
}

// Scratch memory for the row of `rank`, which is of the size of `like`.
at::Tensor OrderedReduction::row(const at::Tensor& like, int rank) {
  const auto bytes = static_cast<std::int64_t>(like.nbytes());
  return rows_.get(bytes * transport_.size()).narrow(0, rank * bytes, bytes);
}

// Sends to[r] to rank r, gets what the others have for us, and reduces that with our own.
void OrderedReduction::reduce_from_all(const Parts& to, const at::Tensor& own, ReduceOp op,
                                       const at::Tensor& output) {
  Parts from(unsigned_of(transport_.size()));
  std::vector<const void*> rows(from.size(), own.const_data_ptr());
  for (int rank = 0; rank < transport_.size(); ++rank) {
    if (rank == transport_.rank()) continue;
    from[unsigned_of(rank)] = row(own, rank);
    rows[unsigned_of(rank)] = from[unsigned_of(rank)].const_data_ptr();
  }
  transport_.exchange(to, from);
  reduce_rows(rows, own.scalar_type(), op, output.mutable_data_ptr(), unsigned_of(own.numel()));
}

void OrderedReduction::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  const auto flat = tensor.view({-1});
  if (flat.numel() == 0) return;
  if (fits_one_round(flat)) return all_reduce_small(flat, op);
  if (transport_.has_transfers()) return streamed_.all_reduce(flat, op);
  const auto piece = elements_of_piece(flat);
  for (std::int64_t begin = 0; begin < flat.numel(); begin += piece) {
    all_reduce_piece(flat.slice(0, begin, begin + piece), op);
  }
}

void OrderedReduction::reduce(const at::Tensor& tensor, int root, ReduceOp op) {
  const auto flat = tensor.view({-1});
  if (flat.numel() == 0) return;
  if (fits_one_round(flat)) return reduce_small(flat, root, op);
  const auto piece = elements_of_piece(flat);
  for (std::int64_t begin = 0; begin < flat.numel(); begin += piece) {
    const auto part = flat.slice(0, begin, begin + piece);
    transport_.has_transfers() ? streamed_.reduce(part, root, op) : reduce_piece(part, root, op);
  }
}

// Everybody gets everything and reduces it alone.
void OrderedReduction::all_reduce_small(const at::Tensor& flat, ReduceOp op) {
  reduce_from_all(to_others(flat), flat, op, flat);
}

// The root gets everything and reduces it.
void OrderedReduction::reduce_small(const at::Tensor& flat, int root, ReduceOp op) {
  if (transport_.rank() == root) return reduce_from_all({}, flat, op, flat);
  Parts to(unsigned_of(transport_.size()));
  to[unsigned_of(root)] = flat;
  transport_.exchange(to, {});
}

// Rank r reduces chunk r, in its place, and gives it to all.
void OrderedReduction::all_reduce_piece(const at::Tensor& piece, ReduceOp op) {
  auto chunks = chunks_of(piece);
  const auto own = std::exchange(chunks[unsigned_of(transport_.rank())], {});
  reduce_from_all(chunks, own, op, own);
  transport_.exchange(to_others(own), chunks);
}

// Rank r reduces chunk r, beside its place, and gives it to the root.
void OrderedReduction::reduce_piece(const at::Tensor& piece, int root, ReduceOp op) {
  const auto chunks = chunks_of(piece);
  const auto& own = chunks[unsigned_of(transport_.rank())];
  if (transport_.rank() == root) {
    reduce_from_all(chunks, own, op, own);
    auto from = chunks;
    from[unsigned_of(root)] = at::Tensor();
    return transport_.exchange({}, from);
  }
  Parts to(unsigned_of(transport_.size()));
  to[unsigned_of(root)] = row(own, transport_.rank());
  reduce_from_all(chunks, own, op, to[unsigned_of(root)]);
  transport_.exchange(to, {});
}

void OrderedReduction::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (input.numel() == 0) return;
  if (transport_.has_transfers()) return streamed_.reduce_scatter(output, input.view({-1}), op);
  const auto chunks = chunks_of(input.view({-1}));
  reduce_from_all(chunks, chunks[unsigned_of(transport_.rank())], op, output);
}

}  // namespace lockstep::detail
