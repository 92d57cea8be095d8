// Values of ranks whose sum tells in which order they were added, and that sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>

#include <lockstep/comm/reduce_op.h>

#include "comm/algorithms/reduce_rows.h"

namespace lockstep::test {

/// After so many values, a prime that no chunk or slice is a multiple of, they come again.
inline constexpr std::int64_t kPeriod = 65'537;

/// The first values of `period`, over and over.
inline at::Tensor repeated(const at::Tensor& period, std::int64_t numel) {
  if (period.numel() == numel) return period;
  return period.repeat({(numel + kPeriod - 1) / kPeriod}).narrow(0, 0, numel);
}

/// Of very different sizes, so that almost every other order of summing gives other bits.
inline at::Tensor unlike_values(int rank, std::int64_t numel, at::ScalarType dtype) {
  const auto x = at::arange(std::min(numel, kPeriod), at::kDouble) + 1 + 1000003.0 * (rank + 1);
  const auto values = (x * 0.7391).sin() * (x * 0.0137).sin().mul(4).exp();
  return repeated((dtype == at::kBool ? values.gt(0) : values * 20).to(dtype), numel);
}

/// The reduction of all ranks' unlike_values() in the order of the tree.
inline at::Tensor reduced_values(int ranks, std::int64_t numel, at::ScalarType dtype, ReduceOp op) {
  const auto period = std::min(numel, kPeriod);
  std::vector<at::Tensor> rows;
  std::vector<const void*> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    rows.push_back(unlike_values(rank, period, dtype));
    memory.push_back(rows.back().const_data_ptr());
  }
  auto output = at::empty({period}, dtype);
  detail::reduce_rows(memory, dtype, op, output.mutable_data_ptr(), static_cast<std::size_t>(period));
  return repeated(output, numel);
}

inline bool has_bits(const at::Tensor& tensor, const at::Tensor& expected) {
  return tensor.nbytes() == expected.nbytes() &&
         std::memcmp(tensor.const_data_ptr(), expected.const_data_ptr(), tensor.nbytes()) == 0;
}

}  // namespace lockstep::test
