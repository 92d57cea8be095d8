// Values of ranks whose sum tells in which order they were added, and that sum.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>

#include <lockstep/comm/reduce_op.h>

#include "comm/algorithms/reduce_rows.h"

namespace lockstep::test {

/// Of very different sizes, so that almost every other order of summing gives other bits.
inline at::Tensor unlike_values(int rank, std::int64_t numel, at::ScalarType dtype) {
  const auto x = at::arange(numel, at::kDouble) + 1 + 1000003.0 * (rank + 1);
  const auto values = (x * 0.7391).sin() * (x * 0.0137).sin().mul(4).exp();
  return (dtype == at::kBool ? values.gt(0) : values * 20).to(dtype);
}

/// The reduction of all ranks' unlike_values() in the order of the tree.
inline at::Tensor reduced_values(int ranks, std::int64_t numel, at::ScalarType dtype, ReduceOp op) {
  std::vector<at::Tensor> rows;
  std::vector<const void*> memory;
  for (int rank = 0; rank < ranks; ++rank) {
    rows.push_back(unlike_values(rank, numel, dtype));
    memory.push_back(rows.back().const_data_ptr());
  }
  auto output = at::empty({numel}, dtype);
  detail::reduce_rows(memory, dtype, op, output.mutable_data_ptr(), static_cast<std::size_t>(numel));
  return output;
}

inline bool has_bits(const at::Tensor& tensor, const at::Tensor& expected) {
  return tensor.nbytes() == expected.nbytes() &&
         std::memcmp(tensor.const_data_ptr(), expected.const_data_ptr(), tensor.nbytes()) == 0;
}

}  // namespace lockstep::test
