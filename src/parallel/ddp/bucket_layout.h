// Where the gradients of a bucket lie in its buffer.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// The parts of a flat `buffer` that hold the gradients of `parameters`, in their shapes. As c10d's Reducer
/// lays them out: one after the other, each with its parameter's strides if that is dense, else row by row.
std::vector<at::Tensor> gradient_views(const at::Tensor& buffer, const std::vector<at::Tensor>& parameters);

}  // namespace lockstep::detail
