// How a tensor lies in its storage.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

struct LOCKSTEP_API TensorPlace {
  TensorPlace() = default;
  explicit TensorPlace(const at::Tensor& tensor);
  /// A tensor that lies in `memory` like that.
  at::Tensor in(const c10::Storage& memory) const;

  std::vector<std::int64_t> sizes = {}, strides = {};
  std::int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
};

}  // namespace lockstep::detail
