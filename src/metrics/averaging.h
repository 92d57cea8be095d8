// From counts to scores.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/metrics/classification_task.h>

namespace lockstep::metrics::detail {

/// numerator / denominator in float64, `zero_division` where the denominator is 0.
at::Tensor safe_divide(const at::Tensor& numerator, const at::Tensor& denominator, double zero_division = 0);

/// The mean of `values` [n], weighted by `weights` [n]; 0 where these sum to 0.
at::Tensor weighted_mean(const at::Tensor& values, const at::Tensor& weights);

}  // namespace lockstep::metrics::detail
