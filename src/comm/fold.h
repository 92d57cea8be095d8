// The one place where values of different ranks are combined.
#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/reduce_op.h>

namespace lockstep::detail {

/// The values of `ranks` ranks: row r, at `data + r * row_elements * element size`, is rank r's.
struct Rows {
  const void* data = nullptr;
  std::size_t row_elements = 0;  ///< distance of rows, in elements
  int ranks = 0;
};

/// Combines the first `count` elements of all rows into `output`, which may be one of the rows.
///
/// Ranks are combined along a tree: neighbours in pairs, then pairs of pairs; an odd one is carried up.
/// Values are widened first (half and bfloat16 to float, integers to 64 bits) and rounded once, after
/// the division of an average. So the bits of an element depend on the ranks' values for it and on
/// nothing else: neither on its position, nor on how tensors were cut, nor on threads.
void fold(const Rows& rows, at::ScalarType dtype, ReduceOp op, void* output, std::size_t count);

}  // namespace lockstep::detail
