// The elements of a tensor in 16 bits, for whoever shards it.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "optim/narrowing.h"

namespace lockstep::detail {

/// A step that is asked to writes them along with the tensor, while both are in the cache.
struct NarrowCopy {
  at::Tensor elements;                           ///< bfloat16 or float16, contiguous
  std::optional<std::uint32_t> written_of = {};  ///< the version of the tensor that a step has written
};

/// Where kernels write it.
NarrowElements elements_of(const NarrowCopy& copy);

/// Writes all of it anew. `original` is contiguous and in float32. Not by an operator: what records those of
/// a model sees no write.
LOCKSTEP_API void convert(const at::Tensor& original, const NarrowCopy& copy);

}  // namespace lockstep::detail
