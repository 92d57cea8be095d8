// Norms of gradients on a device, as operators of LibTorch's dispatcher: what depends on values stays there.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

namespace lockstep::detail {

/// block_square_sums() of dense, real gradients of any floating type, one after the other, float64 on their
/// device. At least one.
at::Tensor device_square_sums(at::TensorList gradients);

/// clip_coefficient() of a norm, without dimensions.
at::Tensor device_clip_coefficient(const at::Tensor& norm, double max_norm);

/// Multiplies gradients, on one device, by a number that is there.
void device_scale(std::span<const at::Tensor> gradients, const at::Tensor& coefficient);

/// pairwise_sum() of a flat float64 tensor, without dimensions.
at::Tensor device_pairwise_sum(const at::Tensor& values);

}  // namespace lockstep::detail
