// Which tensors are pieces of others, of which other ranks have the rest.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// From now on `tensor` is known as one, as long as it lives. Thread-safe.
LOCKSTEP_API void mark_piece(const at::Tensor& tensor);

/// Thread-safe.
bool is_piece(const at::Tensor& tensor);

}  // namespace lockstep::detail
