#include "parallel/sharded/shard_exchange.h"

#include <algorithm>
#include <numeric>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
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

std::vector<double> ShardExchange::join_blocks(std::span<const std::string> parameters,
                                               const std::vector<double>& mine, std::size_t per_block) {
  std::vector<PieceRef> refs;
  for (const auto& parameter : parameters) refs.push_back(piece_of(parameter));
  return joined_blocks(refs, mine, per_block, comm_);
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
