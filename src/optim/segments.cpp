// How kernels get at tensors, and loops on LibTorch's own threads.
#include "optim/segments.h"

#include <optional>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/arange.h>

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

void parallel_for_each(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (count <= 1 || at::get_num_threads() == 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  // An iterator over 0, 1, 2, ... hands every thread its share of the indices.
  const auto indices = at::arange(static_cast<std::int64_t>(count), at::kLong);
  auto iterator = at::TensorIterator::borrowing_nullary_op(indices);
  const auto share = [&](char** data, const std::int64_t* strides, std::int64_t columns, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto* index = data[0] + row * strides[1] + column * strides[0];
        body(static_cast<std::size_t>(*reinterpret_cast<const std::int64_t*>(index)));
      }
    }
  };
  iterator.for_each(share, /*grain_size=*/1);
}

}  // namespace lockstep::detail
