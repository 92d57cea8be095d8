// What looks at whole tensors where every rank has pieces: the norm of gradients, and optimizers.
#include "parallel/sharded/sharded_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/torch.h>

#include "optim/device_operators.h"

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

// Exchanges `mine`, this rank's numbers, and calls use(numbers of a shard, begin, size) for each piece, in
// the order of pieces and, within one, of shards.
template <class Count, class Use>
void gather(std::span<const PieceRef> pieces, const at::Tensor& mine, const Count& count,
            const Communicator& comm, const Use& use) {
  const auto size_of = [&](const PieceRef& ref, int shard) {
    return static_cast<std::int64_t>(count_in(ref, shard, count));
  };
  std::vector<at::Tensor> parts;
  auto shape = mine.sizes().vec();
  for (int shard = 0; shard < comm.size(); ++shard) {
    shape[0] = 0;
    for (const auto& ref : pieces) shape[0] += size_of(ref, shard);
    parts.push_back(at::empty(shape, mine.options()));
  }
  comm.all_gather(parts, mine);
  std::vector<std::int64_t> taken(parts.size());
  for (const auto& ref : pieces) {
    for (int shard = 0; shard < comm.size(); ++shard) {
      const auto index = static_cast<std::size_t>(shard);
      use(parts[index], taken[index], size_of(ref, shard));
      taken[index] += size_of(ref, shard);
    }
  }
}

template <class Count>
Numbers gathered(std::span<const PieceRef> pieces, const Numbers& mine, const Count& count,
                 const Communicator& comm) {
  if (comm.size() == 1) return mine;
  Numbers all;
  gather(pieces, at::tensor(mine, at::kDouble), count, comm,
         [&](const at::Tensor& part, std::int64_t begin, std::int64_t size) {
           const auto* const numbers = part.const_data_ptr<double>() + begin;
           all.insert(all.end(), numbers, numbers + size);
         });
  return all;
}

// The same of rows, on any device.
at::Tensor gathered_rows(std::span<const PieceRef> pieces, const at::Tensor& mine, const Communicator& comm) {
  if (comm.size() == 1) return mine;
  std::vector<at::Tensor> all;
  gather(pieces, mine, &blocks_of, comm, [&](const at::Tensor& part, std::int64_t begin, std::int64_t size) {
    all.push_back(part.narrow(0, begin, size));
  });
  return at::cat(all);
}

double two_norm(std::span<const PieceRef> pieces, const Communicator& comm) {
  std::vector<at::Tensor> gradients;
  for (const auto& ref : pieces)
    if (answers_for(ref, comm)) gradients.push_back(ref.flat->piece(ref.member).grad());
  const auto mine = block_square_sums(gradients);
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

at::Tensor joined_blocks(std::span<const PieceRef> pieces, const at::Tensor& mine, const Communicator& comm) {
  std::vector<at::Tensor> answers{mine.narrow(0, 0, 0)};
  std::int64_t next = 0;
  for (const auto& ref : pieces) {
    const auto count = static_cast<std::int64_t>(blocks_of(ref.flat->place(ref.member)));
    if (answers_for(ref, comm)) answers.push_back(mine.narrow(0, next, count));
    next += count;
  }
  return gathered_rows(pieces, at::cat(answers), comm);
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

at::Tensor sharded_norm_on_device(std::span<const PieceRef> pieces, const Communicator& comm) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> own;
  at::TensorOptions options(at::kDouble);
  for (const auto& ref : pieces) {
    const auto& gradient = ref.flat->piece(ref.member).grad();
    options = options.device(ref.flat->piece(ref.member).device());
    if (answers_for(ref, comm)) own.push_back(gradient.detach());
  }
  const auto mine = own.empty() ? at::empty({0}, options) : device_square_sums(own);
  return device_pairwise_sum(gathered_rows(pieces, mine, comm)).sqrt();
}

namespace {

using Tensors = std::vector<at::Tensor>;

bool is_cut(const PieceRef& ref) { return ref.flat->layout().shards() > 1; }

const at::Tensor& member_of(const PieceRef& ref) { return ref.flat->members()[ref.member].tensor; }

}  // namespace

std::vector<at::Tensor> pieces_of_all(const PieceRef& ref, const at::Tensor& whole) {
  Tensors pieces;
  for (int shard = 0; shard < ref.flat->layout().shards(); ++shard) {
    const auto& piece = ref.flat->layout().pieces(shard)[ref.member];
    pieces.push_back(whole.narrow(0, piece.begin, piece.count));
  }
  return pieces;
}

PieceRef ShardExchange::piece_of(const std::string& parameter) const {
  const auto pieces = pieces_.lock();
  const auto found = pieces ? pieces->find(parameter) : PieceTable::const_iterator();
  if (pieces && found != pieces->end()) return found->second;
  throw ConfigError("parallel", {.what = "an optimizer that asks for whole tensors",
                                 .expected = "parameters that are sharded",
                                 .got = parameter + (pieces ? ", which is not sharded here"
                                                            : ", of a model that is not sharded any more")});
}

std::vector<std::int64_t> ShardExchange::shape_of(const std::string& parameter) const {
  return member_of(piece_of(parameter)).sizes().vec();
}

at::Tensor ShardExchange::join_blocks(std::span<const std::string> parameters, const at::Tensor& mine) {
  std::vector<PieceRef> refs;
  for (const auto& parameter : parameters) refs.push_back(piece_of(parameter));
  return joined_blocks(refs, mine, comm_);
}

void ShardExchange::change_whole(std::span<Part> parts, const Change& change) {
  const torch::NoGradGuard no_grad;
  std::vector<Part*> cut_parts;
  for (auto& part : parts) {
    const auto ref = piece_of(part.parameter);
    if (is_cut(ref)) {
      cut_parts.push_back(&part);
    } else {
      part.elements = change(part.elements.view(member_of(ref).sizes())).reshape({-1});
    }
  }
  // Those of a round take about as long.
  std::ranges::stable_sort(cut_parts, std::ranges::greater(), &Part::cost);
  const auto ranks = static_cast<std::size_t>(comm_.size());
  for (std::size_t first = 0; first < cut_parts.size(); first += ranks) {
    const auto count = std::min(ranks, cut_parts.size() - first);
    change_dealt(std::span(cut_parts).subspan(first, count), change);
  }
}

void ShardExchange::change_dealt(std::span<Part* const> dealt, const Change& change) const {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const auto me = static_cast<std::size_t>(comm_.rank());
  const auto options = dealt.front()->elements.options();
  Tensors own(ranks, at::empty({0}, options)), theirs = own, results = own;
  for (std::size_t rank = 0; rank < dealt.size(); ++rank) {
    own[rank] = dealt[rank]->elements;
    results[rank] = at::empty_like(own[rank]);
  }
  const bool has_one = me < dealt.size();
  const auto ref = piece_of(dealt[has_one ? me : 0]->parameter);
  const auto whole = at::empty({has_one ? member_of(ref).numel() : 0}, options);
  if (has_one) theirs = pieces_of_all(ref, whole);
  comm_.all_to_all(theirs, own);
  if (has_one) {
    const auto changed = change(whole.view(member_of(ref).sizes()));
    theirs = pieces_of_all(ref, changed.to(options.dtype()).reshape({-1}));
  }
  comm_.all_to_all(results, theirs);
  for (std::size_t rank = 0; rank < dealt.size(); ++rank) dealt[rank]->elements = results[rank];
}

}  // namespace lockstep::detail
