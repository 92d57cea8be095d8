// What two ranks' values become, as ATen computes it: the reference of reductions.
#pragma once

#include <array>

#include <ATen/ATen.h>

#include <lockstep/comm/reduce_op.h>

namespace lockstep::test {

/// What collectives move and reduce.
inline constexpr std::array kCollectiveDtypes = {
    at::kDouble, at::kFloat, at::kHalf,  at::kBFloat16, at::kComplexDouble, at::kComplexFloat,
    at::kLong,   at::kInt,   at::kShort, at::kChar,     at::kByte,          at::kBool};

/// `a` and `b` by `op`; of kAvg the sum, which is divided later.
inline at::Tensor combined(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kMin:
      return at::minimum(a, b);
    case ReduceOp::kMax:
      return at::maximum(a, b);
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kBitAnd:
      return a.bitwise_and(b);
    case ReduceOp::kBitOr:
      return a.bitwise_or(b);
    case ReduceOp::kBitXor:
      return a.bitwise_xor(b);
  }
  return {};
}

/// `tensor` by `divisor`, part by part: a complex divisor would round more than once.
inline at::Tensor divided(const at::Tensor& tensor, int divisor) {
  if (!tensor.is_complex()) return tensor / divisor;
  return at::view_as_complex(at::view_as_real(tensor) / divisor);
}

}  // namespace lockstep::test
