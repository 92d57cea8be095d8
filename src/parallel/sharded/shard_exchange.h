// How optimizers that look at whole tensors do so where every rank has pieces.
//
// Lamb needs the norms of whole tensors: sums over blocks, a few numbers, are gathered. Muon needs whole
// matrices, and much arithmetic on each. Were they gathered, every rank would receive all of them and compute
// the same. Instead they are dealt out: a matrix is put together on one rank, which sends the pieces of its
// result back. For matrices of P bytes on N ranks a rank sends 2 P (N-1)/N^2 instead of P (N-1)/N, computes
// the N-th part, and holds one matrix at a time.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/comm/communicator.h>
#include <lockstep/optim/piece_exchange.h>

#include "parallel/sharded/sharded_norm.h"

namespace lockstep::detail {

/// Members by their names.
using PieceTable = std::unordered_map<std::string, PieceRef>;

/// `whole`, a member's elements, flat, as the pieces that ranks have: views, by shard.
std::vector<at::Tensor> pieces_of_all(const PieceRef& ref, const at::Tensor& whole);

class ShardExchange final : public PieceExchange {
 public:
  /// `pieces` lives as long as the parameters are sharded; `comm` is that of the ranks that hold the shards.
  ShardExchange(std::weak_ptr<const PieceTable> pieces, Communicator comm)
      : pieces_(std::move(pieces)), comm_(std::move(comm)) {}

  std::vector<std::int64_t> shape_of(const std::string& parameter) const override;
  std::vector<double> join_blocks(std::span<const std::string> parameters, const std::vector<double>& mine,
                                  std::size_t per_block) override;
  void change_whole(std::span<Part> parts, const Change& change) override;

 private:
  PieceRef piece_of(const std::string& parameter) const;
  /// Each rank changes the whole of one of `dealt`, by rank; fewer than ranks leave the last ones idle.
  void change_dealt(std::span<Part* const> dealt, const Change& change) const;

  std::weak_ptr<const PieceTable> pieces_;
  Communicator comm_;
};

}  // namespace lockstep::detail
