// Which tensors are pieces of others, of which other ranks have the rest.
#pragma once

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

#include "optim/narrow_copy.h"

namespace lockstep::detail {

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
