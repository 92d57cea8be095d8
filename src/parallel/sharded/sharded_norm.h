// The norm of gradients of which every rank has pieces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

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

}  // namespace lockstep::detail
