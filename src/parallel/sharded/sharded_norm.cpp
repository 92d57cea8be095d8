#include "parallel/sharded/sharded_norm.h"

#include <cmath>
#include <limits>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

using Numbers = std::vector<double>;

bool has_gradient(const PieceRef& ref) { return ref.flat->piece(ref.member).grad().defined(); }

// What is not sharded lies whole on every rank; the first one answers for it.
bool is_whole(const PieceRef& ref) { return ref.flat->layout().shards() == 1; }

// `count`: how many numbers a shard has of a parameter's piece.
template <class Count>
std::size_t count_in(const PieceRef& ref, int shard, const Count& count) {
  if (!has_gradient(ref) || (is_whole(ref) && shard > 0)) return 0;
  return count(ref.flat->layout().pieces(shard)[ref.member]);
}

bool answers_for(const PieceRef& ref, const Communicator& comm) {
  return has_gradient(ref) && (!is_whole(ref) || comm.rank() == 0);
}

std::size_t blocks_of(const ShardPiece& piece) {
  return static_cast<std::size_t>((piece.count + kGradNormBlock - 1) / kGradNormBlock);
}

std::size_t one_if_any(const ShardPiece& piece) { return piece.count > 0 ? 1 : 0; }

// Every shard's numbers of all pieces, in the order of pieces and, within one, of shards.
template <class Count>
Numbers gathered(std::span<const PieceRef> pieces, const Numbers& mine, const Count& count,
                 const Communicator& comm) {
  if (comm.size() == 1) return mine;
  std::vector<at::Tensor> parts;
  for (int shard = 0; shard < comm.size(); ++shard) {
    std::size_t total = 0;
    for (const auto& ref : pieces) total += count_in(ref, shard, count);
    parts.push_back(at::empty({static_cast<std::int64_t>(total)}, at::kDouble));
  }
  comm.all_gather(parts, at::tensor(mine, at::kDouble));
  Numbers all;
  std::vector<std::int64_t> taken(parts.size());
  for (const auto& ref : pieces) {
    for (int shard = 0; shard < comm.size(); ++shard) {
      const auto index = static_cast<std::size_t>(shard);
      const auto* numbers = parts[index].data_ptr<double>() + taken[index];
      const auto size = count_in(ref, shard, count);
      all.insert(all.end(), numbers, numbers + size);
      taken[index] += static_cast<std::int64_t>(size);
    }
  }
  return all;
}

double two_norm(std::span<const PieceRef> pieces, const Communicator& comm) {
  Numbers mine;
  for (const auto& ref : pieces) {
    if (!answers_for(ref, comm)) continue;
    const auto sums = block_square_sums(ref.flat->piece(ref.member).grad());
    mine.insert(mine.end(), sums.begin(), sums.end());
  }
  return std::sqrt(pairwise_sum(gathered(pieces, mine, &blocks_of, comm)));
}

double other_norm(std::span<const PieceRef> pieces, double p, const Communicator& comm) {
  Numbers mine;
  for (const auto& ref : pieces) {
    const auto& gradient = ref.flat->piece(ref.member).grad();
    if (!answers_for(ref, comm) || gradient.numel() == 0) continue;
    mine.push_back(at::linalg_vector_norm(gradient.to(at::kDouble), p).item<double>());
  }
  const auto all = gathered(pieces, mine, &one_if_any, comm);
  return all.empty() ? 0.0 : at::linalg_vector_norm(at::tensor(all, at::kDouble), p).item<double>();
}

}  // namespace

std::vector<double> joined_blocks(std::span<const PieceRef> pieces, const std::vector<double>& mine,
                                  std::size_t per_block, const Communicator& comm) {
  const auto count = [per_block](const ShardPiece& piece) { return per_block * blocks_of(piece); };
  Numbers answers;
  auto next = mine.begin();
  for (const auto& ref : pieces) {
    const auto end = next + static_cast<std::ptrdiff_t>(count(ref.flat->place(ref.member)));
    if (answers_for(ref, comm)) answers.insert(answers.end(), next, end);
    next = end;
  }
  return gathered(pieces, answers, count, comm);
}

double sharded_grad_norm(std::span<const PieceRef> pieces, double norm_type, const Communicator& comm) {
  if (!(norm_type > 0)) {
    throw ConfigError("parallel", {.what = "norm_type is out of range",
                                   .expected = "a number > 0, or infinity",
                                   .got = std::to_string(norm_type)});
  }
  const torch::NoGradGuard no_grad;
  return norm_type == 2.0 ? two_norm(pieces, comm) : other_norm(pieces, norm_type, comm);
}

}  // namespace lockstep::detail
