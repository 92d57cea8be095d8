// How the values of ranks are combined.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>

namespace lockstep::detail {

/// The one place where values of different ranks are combined.
///
/// Combines the first `count` elements of all rows, which are the ranks' values in the order of the ranks,
/// into `output`, which may be one of the rows.
///
/// Ranks are combined along a tree: neighbours in pairs, then pairs of pairs; an odd one is carried up.
/// Values are widened first (half and bfloat16 to float, integers to 64 bits) and rounded once, after
/// the division of an average. So the bits of an element depend on the ranks' values for it and on
/// nothing else: neither on its position, nor on how tensors were cut, nor on threads.
LOCKSTEP_API void reduce_rows(std::span<const void* const> rows, at::ScalarType dtype, ReduceOp op,
                              void* output, std::size_t count);

/// What sums of some of the ranks are kept in until they are summed with the rest: wide enough that nothing
/// is rounded in between.
LOCKSTEP_API at::ScalarType partial_dtype(at::ScalarType dtype);

/// The same of some of the ranks, whose rows are one node of the tree: 2^k of them whose first one is a
/// multiple of that. `partial` is of partial_dtype(); an average is not divided yet.
LOCKSTEP_API void reduce_some_rows(std::span<const void* const> rows, at::ScalarType dtype, ReduceOp op,
                                   void* partial, std::size_t count);

/// The rest, of rows of partial_dtype() that are all nodes of one level, of `ranks` ranks together.
LOCKSTEP_API void reduce_partials(std::span<const void* const> rows, at::ScalarType dtype, ReduceOp op,
                                  std::size_t ranks, void* output, std::size_t count);

}  // namespace lockstep::detail
