// Collectives on many tensors at the price of few.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep {

/// Replaces each of `tensors` by that of rank `root`. Of any dtype; small ones travel together.
/// Collective, blocking: all ranks give tensors of equal number, shapes and dtypes.
/// @throws as Communicator::broadcast, and so CollectiveMismatch for tensors that differ between ranks
LOCKSTEP_API void broadcast_coalesced(const Communicator& comm, std::span<const at::Tensor> tensors,
                                      int root = 0);

}  // namespace lockstep
