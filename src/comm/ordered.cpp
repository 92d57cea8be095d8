#include "comm/ordered.h"

#include <algorithm>
#include <cstring>

#include "comm/fold.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kOneRoundBytes = 256 << 10;  // of all ranks together: below, one exchange beats two
constexpr std::int64_t kPieceBytes = 8 << 20;       // bounds scratch memory, keeps it in the cache

std::size_t unsigned_of(std::int64_t number) { return static_cast<std::size_t>(number); }

// How a piece is cut into one chunk per rank; the last chunks may be short or empty.
class Cut {
 public:
  Cut(const at::Tensor& piece, std::int64_t ranks)
      : bytes_(static_cast<std::int64_t>(piece.nbytes())),
        chunk_bytes_((piece.numel() + ranks - 1) / ranks * piece.element_size()) {}

  std::int64_t chunk_bytes() const { return chunk_bytes_; }
  std::int64_t begin_of(std::int64_t rank) const { return std::min(rank * chunk_bytes_, bytes_); }
  std::int64_t bytes_of(std::int64_t rank) const { return begin_of(rank + 1) - begin_of(rank); }

 private:
  std::int64_t bytes_;
  std::int64_t chunk_bytes_;
};

}  // namespace

at::Tensor Scratch::get(std::int64_t bytes) {
  if (!memory_.defined() || memory_.numel() < bytes) memory_ = at::empty({bytes}, at::kByte);
  return memory_.narrow(0, 0, bytes);
}

// A few kilobytes cost a round trip, whatever their number.
bool OrderedReducer::fits_one_round(const at::Tensor& flat) const {
  return static_cast<std::int64_t>(flat.nbytes()) * transport_.size() <= kOneRoundBytes;
}

// A multiple of the number of ranks, so that only the last piece has uneven chunks.
std::int64_t OrderedReducer::elements_of_piece(const at::Tensor& flat) const {
  return std::max<std::int64_t>(1, kPieceBytes / flat.element_size() / transport_.size()) * transport_.size();
}

void OrderedReducer::fold_rows(const at::Tensor& rows, at::ScalarType dtype, ReduceOp op,
                               const at::Tensor& output) {
  const auto count = output.nbytes() / c10::elementSize(dtype);
  fold({.data = rows.const_data_ptr(), .row_elements = count, .ranks = transport_.size()}, dtype, op,
       output.mutable_data_ptr(), count);
}

void OrderedReducer::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  const auto flat = tensor.view({-1});
  if (flat.numel() == 0) return;
  if (fits_one_round(flat)) return all_reduce_small(flat, op);
  const auto piece = elements_of_piece(flat);
  for (std::int64_t begin = 0; begin < flat.numel(); begin += piece) {
    all_reduce_piece(flat.slice(0, begin, begin + piece), op);
  }
}

void OrderedReducer::reduce(const at::Tensor& tensor, int root, ReduceOp op) {
  const auto flat = tensor.view({-1});
  if (flat.numel() == 0) return;
  if (fits_one_round(flat)) return reduce_small(flat, root, op);
  const auto piece = elements_of_piece(flat);
  for (std::int64_t begin = 0; begin < flat.numel(); begin += piece) {
    reduce_piece(flat.slice(0, begin, begin + piece), root, op);
  }
}

// Everybody gets everything and folds it alone.
void OrderedReducer::all_reduce_small(const at::Tensor& flat, ReduceOp op) {
  const auto rows = rows_.get(static_cast<std::int64_t>(flat.nbytes()) * transport_.size());
  transport_.all_gather(rows, flat);
  fold_rows(rows, flat.scalar_type(), op, flat);
}

// The root gets everything and folds it.
void OrderedReducer::reduce_small(const at::Tensor& flat, int root, ReduceOp op) {
  std::vector<at::Tensor> to(unsigned_of(transport_.size()));
  to[unsigned_of(root)] = flat;
  if (transport_.rank() != root) return transport_.exchange(to, {});
  const auto row_bytes = static_cast<std::int64_t>(flat.nbytes());
  const auto rows = rows_.get(row_bytes * transport_.size());
  transport_.exchange(to, rows.split(row_bytes));
  fold_rows(rows, flat.scalar_type(), op, flat);
}

// Rank r gets all rows of chunk r and folds them. The result is scratch memory of chunk_bytes().
at::Tensor OrderedReducer::fold_own_chunk(const at::Tensor& piece, ReduceOp op) {
  const std::int64_t ranks = transport_.size();
  const Cut cut(piece, ranks);
  std::vector<std::int64_t> send;
  for (std::int64_t rank = 0; rank < ranks; ++rank) send.push_back(cut.bytes_of(rank));
  const auto mine = cut.bytes_of(transport_.rank());
  const auto rows = rows_.get(ranks * mine);
  transport_.all_to_all(rows, piece, std::vector<std::int64_t>(unsigned_of(ranks), mine), std::move(send));
  const auto chunk = chunk_.get(cut.chunk_bytes());
  fold_rows(rows, piece.scalar_type(), op, chunk.narrow(0, 0, mine));
  return chunk;
}

void OrderedReducer::all_reduce_piece(const at::Tensor& piece, ReduceOp op) {
  const auto chunk = fold_own_chunk(piece, op);
  const auto all_bytes = chunk.numel() * transport_.size();
  const bool is_even = all_bytes == static_cast<std::int64_t>(piece.nbytes());
  const auto gathered = is_even ? piece : gathered_.get(all_bytes);
  transport_.all_gather(gathered, chunk);
  if (!is_even) std::memcpy(piece.mutable_data_ptr(), gathered.const_data_ptr(), piece.nbytes());
}

void OrderedReducer::reduce_piece(const at::Tensor& piece, int root, ReduceOp op) {
  const Cut cut(piece, transport_.size());
  const auto chunk = fold_own_chunk(piece, op);
  std::vector<at::Tensor> to(unsigned_of(transport_.size()));
  to[unsigned_of(root)] = chunk.narrow(0, 0, cut.bytes_of(transport_.rank()));
  if (transport_.rank() != root) return transport_.exchange(to, {});
  const auto bytes = piece.view(at::kByte);
  std::vector<at::Tensor> from;
  for (int rank = 0; rank < transport_.size(); ++rank) {
    from.push_back(bytes.narrow(0, cut.begin_of(rank), cut.bytes_of(rank)));
  }
  transport_.exchange(to, from);
}

void OrderedReducer::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  if (input.numel() == 0) return;
  const auto mine = static_cast<std::int64_t>(output.nbytes());
  const std::vector<std::int64_t> bytes(unsigned_of(transport_.size()), mine);
  const auto rows = rows_.get(static_cast<std::int64_t>(input.nbytes()));
  transport_.all_to_all(rows, input, bytes, bytes);
  fold_rows(rows, output.scalar_type(), op, output);
}

}  // namespace lockstep::detail
