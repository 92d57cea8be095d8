#include "optim/gradient_tensor.h"

#include <optional>

namespace lockstep::detail {
namespace {

std::optional<GradientType> type_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return GradientType::kFloat32;
    case at::kDouble:
      return GradientType::kFloat64;
    case at::kBFloat16:
      return GradientType::kBFloat16;
    case at::kHalf:
      return GradientType::kFloat16;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool is_readable(const at::Tensor& gradient) {
  return type_of(gradient.scalar_type()) && gradient.is_contiguous() && !gradient.is_neg();
}

Gradients gradients_in(const at::Tensor& gradient) {
  return {gradient.const_data_ptr(), *type_of(gradient.scalar_type())};
}

at::Tensor readable(const at::Tensor& gradient) {
  return (type_of(gradient.scalar_type()) ? gradient : gradient.to(at::kFloat)).resolve_neg().contiguous();
}

}  // namespace lockstep::detail
