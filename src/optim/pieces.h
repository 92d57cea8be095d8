// Which tensors are pieces of others, of which other ranks have the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "optim/kernels.h"

namespace lockstep::detail {

// The elements of a tensor in 16 bits, for whoever shards it.

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

/// A piece, contiguous.
struct Piece {
  at::Tensor elements;
  std::shared_ptr<NarrowCopy> narrow = {};  ///< null where nobody wants one; not kept here
};

/// From now on `pieces` are known as such, as long as their tensors live. Thread-safe.
LOCKSTEP_API void mark_pieces(std::span<const Piece> pieces);

/// Thread-safe.
bool is_piece(const at::Tensor& tensor);

/// That of a piece, null for all others. Thread-safe.
LOCKSTEP_API std::shared_ptr<NarrowCopy> narrow_copy_of(const at::Tensor& tensor);

}  // namespace lockstep::detail
