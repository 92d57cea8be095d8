// The dispatch keys of a tensor that stays the same object.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// Gives `tensor` other keys; storage, shape, gradient and hooks stay.
void set_keys(const at::Tensor& tensor, c10::DispatchKeySet keys);

}  // namespace lockstep::detail
