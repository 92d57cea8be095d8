// How kernels get at tensors: gradients as they read them, and loops on LibTorch's own threads.
#pragma once

#include <cstddef>
#include <functional>

#include <ATen/core/Tensor.h>

#include "optim/kernels.h"

namespace lockstep::detail {

/// Whether kernels read `gradient` where it lies.
bool is_readable(const at::Tensor& gradient);

/// The elements of `gradient`, which is_readable(), as long as it lives.
Gradients gradients_in(const at::Tensor& gradient);

/// `gradient`, if it is_readable(), else a copy that is: of the same type, or of float32 where kernels do not
/// know that.
at::Tensor readable(const at::Tensor& gradient);

/// Calls body(i) once for each i in [0, count), on at::get_num_threads() threads. Blocks. at::parallel_for
/// would run on one thread here unless this library linked an OpenMP runtime of its own. The body must not
/// throw.
void parallel_for_each(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace lockstep::detail
