#include "comm/ordered.h"

#include <algorithm>
#include <cstring>

#include "comm/fold.h"

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

void OrderedReducer::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  const auto flat = tensor.view({-1});
  if (flat.numel() == 0) return;
  if (static_cast<std::int64_t>(flat.nbytes()) * transport_.size() <= kOneRoundBytes) {
    return all_reduce_small(flat, op);
  }
  // A multiple of the number of ranks, so that only the last piece has uneven chunks.
  const auto per_rank = std::max<std::int64_t>(1, kPieceBytes / flat.element_size() / transport_.size());
  const auto piece = per_rank * transport_.size();
  for (std::int64_t begin = 0; begin < flat.numel(); begin += piece) {
    all_reduce_piece(flat.slice(0, begin, begin + piece), op);
  }
}

// Everybody gets everything and folds it alone.
void OrderedReducer::all_reduce_small(const at::Tensor& flat, ReduceOp op) {
  const auto rows = rows_.get(static_cast<std::int64_t>(flat.nbytes()) * transport_.size());
  transport_.all_gather(rows, flat);
  const auto count = unsigned_of(flat.numel());
  fold({.data = rows.const_data_ptr(), .row_elements = count, .ranks = transport_.size()}, flat.scalar_type(),
       op, flat.mutable_data_ptr(), count);
}

// Rank r gets all rows of chunk r, folds them, and gives the result to all.
void OrderedReducer::all_reduce_piece(const at::Tensor& piece, ReduceOp op) {
  const std::int64_t ranks = transport_.size();
  const auto item = piece.element_size();
  const auto chunk_elements = (piece.numel() + ranks - 1) / ranks;
  const auto bytes_of_chunk = [&](std::int64_t rank) {
    return std::clamp<std::int64_t>(piece.numel() - rank * chunk_elements, 0, chunk_elements) * item;
  };
  std::vector<std::int64_t> send(unsigned_of(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) send[unsigned_of(rank)] = bytes_of_chunk(rank);
  const auto mine = bytes_of_chunk(transport_.rank());

  const auto rows = rows_.get(ranks * mine);
  transport_.all_to_all(rows, piece, std::vector<std::int64_t>(unsigned_of(ranks), mine), send);
  const auto chunk = chunk_.get(chunk_elements * item);
  const auto count = unsigned_of(mine / item);
  fold({.data = rows.const_data_ptr(), .row_elements = count, .ranks = transport_.size()},
       piece.scalar_type(), op, chunk.mutable_data_ptr(), count);

  const bool is_even = chunk_elements * ranks == piece.numel();
  const auto gathered = is_even ? piece : gathered_.get(ranks * chunk_elements * item);
  transport_.all_gather(gathered, chunk);
  if (!is_even) std::memcpy(piece.mutable_data_ptr(), gathered.const_data_ptr(), piece.nbytes());
}

void OrderedReducer::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (input.numel() == 0) return;
  const auto mine = static_cast<std::int64_t>(output.nbytes());
  const std::vector<std::int64_t> bytes(unsigned_of(transport_.size()), mine);
  const auto rows = rows_.get(static_cast<std::int64_t>(input.nbytes()));
  transport_.all_to_all(rows, input, bytes, bytes);
  const auto count = unsigned_of(output.numel());
  fold({.data = rows.const_data_ptr(), .row_elements = count, .ranks = transport_.size()},
       output.scalar_type(), op, output.mutable_data_ptr(), count);
}

}  // namespace lockstep::detail
