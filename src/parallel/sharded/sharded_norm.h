// The norm of gradients of which every rank has pieces.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

#include "parallel/sharded/flat_parameter.h"

namespace lockstep::detail {

/// A member of a FlatParameter.
struct PieceRef {
  const FlatParameter* flat;
  std::size_t member;
};

/// The 2-norm of the gradients of `pieces`, with the bits of grad_norm() on the whole; any other p-norm in
/// float64. `comm` is that of the ranks that hold the shards. Collective, blocking.
/// @throws ConfigError unless norm_type > 0
double sharded_grad_norm(std::span<const PieceRef> pieces, double norm_type, const Communicator& comm);

}  // namespace lockstep::detail
