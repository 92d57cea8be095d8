// Collectives on many tensors as one: packed for the way, or in flat tensors that hold them side by side.
#pragma once

#include <cstdint>
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

/// Replaces each of `tensors`, which have one dtype, by the reduction of all ranks' tensors, to the bits of
/// Communicator::all_reduce() of each: one collective for all, which are read and written where they lie. As
/// torch.distributed.all_reduce_coalesced. Collective, blocking: all ranks give tensors of equal number and
/// shapes.
LOCKSTEP_API void all_reduce_coalesced(const Communicator& comm, std::span<const at::Tensor> tensors,
                                       ReduceOp op = ReduceOp::kSum);

/// The same, but returns at once. Tensors may not be touched until wait(). Collective, asynchronous.
[[nodiscard]] LOCKSTEP_API Work all_reduce_coalesced_async(const Communicator& comm,
                                                           std::span<const at::Tensor> tensors,
                                                           ReduceOp op = ReduceOp::kSum);

/// As Communicator::all_gather_async(), for tensors of one dimension. `layout` says what they hold: ranks
/// that give different ones are told so, even where sizes and dtypes agree. Not 0. Collective, asynchronous.
[[nodiscard]] LOCKSTEP_API Work all_gather_flat_async(const Communicator& comm, const at::Tensor& output,
                                                      const at::Tensor& input, std::int64_t layout);

/// As Communicator::reduce_scatter_async(); `layout` as above. Collective, asynchronous.
[[nodiscard]] LOCKSTEP_API Work reduce_scatter_flat_async(const Communicator& comm, const at::Tensor& output,
                                                          const at::Tensor& input, ReduceOp op,
                                                          std::int64_t layout);

/// As Communicator::all_to_all_async() with equal parts; `layout` as above. Collective, asynchronous.
[[nodiscard]] LOCKSTEP_API Work all_to_all_flat_async(const Communicator& comm, const at::Tensor& output,
                                                      const at::Tensor& input, std::int64_t layout);

}  // namespace lockstep
