#include "metrics/averaging.h"

#include <ATen/ATen.h>

namespace lockstep::metrics::detail {

at::Tensor safe_divide(const at::Tensor& numerator, const at::Tensor& denominator, double zero_division) {
  const auto ratio = numerator.to(at::kDouble) / denominator.to(at::kDouble);
  return ratio.masked_fill(denominator.eq(0), zero_division);
}

at::Tensor weighted_mean(const at::Tensor& values, const at::Tensor& weights) {
  return (safe_divide(weights, weights.sum()) * values).sum();
}

}  // namespace lockstep::metrics::detail
