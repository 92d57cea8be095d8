// The one place where values of different ranks are combined.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/reduce_op.h>

namespace lockstep::detail {

/// Combines the first `count` elements of all rows, which are the ranks' values in the order of the ranks,
/// into `output`, which may be one of the rows.
///
/// Ranks are combined along a tree: neighbours in pairs, then pairs of pairs; an odd one is carried up.
/// Values are widened first (half and bfloat16 to float, integers to 64 bits) and rounded once, after
/// the division of an average. So the bits of an element depend on the ranks' values for it and on
/// nothing else: neither on its position, nor on how tensors were cut, nor on threads.
void reduce_rows(std::span<const void* const> rows, at::ScalarType dtype, ReduceOp op, void* output,
                 std::size_t count);

}  // namespace lockstep::detail
