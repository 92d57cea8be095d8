// Tensors of gradients as kernels read them.
#pragma once

#include <ATen/core/Tensor.h>

#include "optim/gradients.h"

namespace lockstep::detail {

/// Whether kernels read `gradient` where it lies.
bool is_readable(const at::Tensor& gradient);

/// The elements of `gradient`, which is_readable(), as long as it lives.
Gradients gradients_in(const at::Tensor& gradient);

/// `gradient`, if it is_readable(), else a copy that is: of the same type, or of float32 where kernels do not
/// know that.
at::Tensor readable(const at::Tensor& gradient);

}  // namespace lockstep::detail
