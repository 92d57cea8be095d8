#include "optim/parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/arange.h>

namespace lockstep::detail {

void parallel_for_each(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  if (count <= 1 || at::get_num_threads() == 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  // An iterator over 0, 1, 2, ... hands every thread its share of the indices.
  const auto indices = at::arange(count, at::kLong);
  auto iterator = at::TensorIterator::borrowing_nullary_op(indices);
  const auto share = [&](char** data, const std::int64_t* strides, std::int64_t columns, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        body(*reinterpret_cast<const std::int64_t*>(data[0] + row * strides[1] + column * strides[0]));
      }
    }
  };
  iterator.for_each(share, /*grain_size=*/1);
}

}  // namespace lockstep::detail
