// Collectives on flat tensors that hold many others side by side.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>

namespace lockstep {

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
