// Norms of gradients on a device, as operators of LibTorch's dispatcher: what depends on values stays there.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// block_square_sums() of a dense, real gradient of any floating type, float64 on its device.
at::Tensor device_square_sums(const at::Tensor& gradient);

/// clip_coefficient() of a norm, without dimensions.
at::Tensor device_clip_coefficient(const at::Tensor& norm, double max_norm);

/// pairwise_sum() of a flat float64 tensor, without dimensions.
at::Tensor device_pairwise_sum(const at::Tensor& values);

}  // namespace lockstep::detail
