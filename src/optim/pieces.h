// Which tensors are pieces of others, of which other ranks have the rest.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// From now on `tensors` are known as such, as long as they live. Thread-safe.
LOCKSTEP_API void mark_pieces(std::span<const at::Tensor> tensors);

/// Thread-safe.
bool is_piece(const at::Tensor& tensor);

}  // namespace lockstep::detail
