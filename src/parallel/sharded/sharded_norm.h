// What looks at whole tensors where every rank has pieces: the norm of gradients, and optimizers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/optim/optimizer_factory.h>

#include "parallel/sharded/flat_parameter.h"

namespace lockstep::detail {

/// A member of a FlatParameter.
struct PieceRef {
  FlatParameter* flat;
  std::size_t member;
};

/// `mine` has `per_block` numbers for each block of kGradNormBlock elements of this rank's `pieces`, in
/// order; returns every shard's, in the order of pieces and, within one, of elements. All pieces have
/// gradients. Collective, blocking.
std::vector<double> joined_blocks(std::span<const PieceRef> pieces, const std::vector<double>& mine,
                                  std::size_t per_block, const Communicator& comm);

/// The 2-norm of the gradients of `pieces`, with the bits of grad_norm() on the whole; any other p-norm in
/// float64. `comm` is that of the ranks that hold the shards. Collective, blocking.
/// @throws ConfigError unless norm_type > 0
double sharded_grad_norm(std::span<const PieceRef> pieces, double norm_type, const Communicator& comm);

/// The 2-norm of gradients on a device, float64 without dimensions; the host waits for nobody. Collective.
at::Tensor sharded_norm_on_device(std::span<const PieceRef> pieces, const Communicator& comm);

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
