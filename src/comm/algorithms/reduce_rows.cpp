// In loops over elements that the compiler vectorises.
#include "comm/algorithms/reduce_rows.h"

#include <ATen/Dispatch.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace lockstep::detail {
namespace {

constexpr std::size_t kBlock = 512;  // elements; a block of every rank stays in the first-level cache

using Rows = std::span<const void* const>;

// What values of T are combined as, and what such a value is divided by.
template <class T>
struct Widened {
  using Type = std::conditional_t<std::is_integral_v<T>, std::int64_t,
                                  std::conditional_t<std::is_same_v<T, double>, double, float>>;
  using Real = Type;
};
template <class T>
struct Widened<c10::complex<T>> {
  using Type = c10::complex<T>;
  using Real = T;
};

// Integers wrap around as two's complement does, which signed arithmetic may not.
struct Add {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::is_integral_v<W>) {
      return static_cast<W>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    } else {
      return a + b;
    }
  }
};

struct Multiply {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::is_integral_v<W>) {
      return static_cast<W>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

// A NaN compares false with everything, itself included: either operand's wins.
struct Min {
  template <class W>
  W operator()(W a, W b) const {
    return a < b || a != a ? a : b;
  }
};

struct Max {
  template <class W>
  W operator()(W a, W b) const {
    return a > b || a != a ? a : b;
  }
};

// Of integers: widening kept all bits.
struct BitAnd {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a & b; }
};

struct BitOr {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a | b; }
};

struct BitXor {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a ^ b; }
};

template <class W>
using Blocks = std::vector<std::array<W, kBlock>>;

// The first level of the tree, where rows are read: each block is of two neighbours, the last one maybe of
// one.
template <class T, class W, class Combine>
void combine_neighbours(Rows rows, std::size_t begin, std::size_t length, Blocks<W>& blocks,
                        Combine combine) {
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    W* const into = blocks[i / 2].data();
    const T* const a = static_cast<const T*>(rows[i]) + begin;
    const T* const b = i + 1 < rows.size() ? static_cast<const T*>(rows[i + 1]) + begin : nullptr;
    if (b) {
      for (std::size_t k = 0; k < length; ++k) into[k] = combine(static_cast<W>(a[k]), static_cast<W>(b[k]));
    } else {
      for (std::size_t k = 0; k < length; ++k) into[k] = static_cast<W>(a[k]);
    }
  }
}

template <class W, class Combine>
void combine_blocks(Blocks<W>& blocks, std::size_t length, Combine combine) {
  for (std::size_t stride = 1; stride < blocks.size(); stride *= 2) {
    for (std::size_t i = 0; i + stride < blocks.size(); i += 2 * stride) {
      W* const into = blocks[i].data();
      const W* const from = blocks[i + stride].data();
      for (std::size_t k = 0; k < length; ++k) into[k] = combine(into[k], from[k]);
    }
  }
}

// Two rows need no memory between. The output may be one of them, element by element.
template <class T, class Out, class Combine>
void combine_two(const T* a, const T* b, Out* output, std::size_t count, std::size_t divisor,
                 Combine combine) {
  using W = typename Widened<T>::Type;
  const auto combined = [&](std::size_t k) { return combine(static_cast<W>(a[k]), static_cast<W>(b[k])); };
  if (divisor > 1) {
    const auto ranks = static_cast<typename Widened<T>::Real>(divisor);
#pragma GCC ivdep
    for (std::size_t k = 0; k < count; ++k) output[k] = static_cast<Out>(combined(k) / ranks);
  } else {
#pragma GCC ivdep
    for (std::size_t k = 0; k < count; ++k) output[k] = static_cast<Out>(combined(k));
  }
}

template <class T, class Out, class Combine>
void reduce_as(Rows rows, Out* output, std::size_t count, std::size_t divisor, Combine combine) {
  using W = typename Widened<T>::Type;
  if (rows.size() == 2)
    return combine_two(static_cast<const T*>(rows[0]), static_cast<const T*>(rows[1]), output, count, divisor,
                       combine);
  const auto ranks = static_cast<typename Widened<T>::Real>(divisor);
  Blocks<W> blocks((rows.size() + 1) / 2);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    combine_neighbours<T>(rows, begin, length, blocks, combine);
    combine_blocks(blocks, length, combine);
    const W* const sum = blocks[0].data();
    Out* const to = output + begin;
    if (divisor > 1) {
      for (std::size_t k = 0; k < length; ++k) to[k] = static_cast<Out>(sum[k] / ranks);
    } else {
      for (std::size_t k = 0; k < length; ++k) to[k] = static_cast<Out>(sum[k]);
    }
  }
}

// Callers have refused what a type has not.
template <class T, class Out>
void reduce_comparable(Rows rows, ReduceOp op, Out* output, std::size_t count) {
  if (op == ReduceOp::kMin) return reduce_as<T>(rows, output, count, 1, Min{});
  if (op == ReduceOp::kMax) return reduce_as<T>(rows, output, count, 1, Max{});
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kBitAnd) return reduce_as<T>(rows, output, count, 1, BitAnd{});
    if (op == ReduceOp::kBitOr) return reduce_as<T>(rows, output, count, 1, BitOr{});
    if (op == ReduceOp::kBitXor) return reduce_as<T>(rows, output, count, 1, BitXor{});
  }
}

// An average is a sum of rows of T that is divided by `ranks`.
template <class T, class Out>
void reduce_type(Rows rows, ReduceOp op, std::size_t ranks, Out* output, std::size_t count) {
  if (op == ReduceOp::kSum) return reduce_as<T>(rows, output, count, 1, Add{});
  if (op == ReduceOp::kAvg) return reduce_as<T>(rows, output, count, ranks, Add{});
  if (op == ReduceOp::kProduct) return reduce_as<T>(rows, output, count, 1, Multiply{});
  if constexpr (!c10::is_complex<T>::value) reduce_comparable<T>(rows, op, output, count);
}

// Integers that wrap around in between give what wide ones give: only their low bits count.
template <class T>
using Partial =
    std::conditional_t<(std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>), float, T>;

}  // namespace

void reduce_rows(Rows rows, at::ScalarType dtype, ReduceOp op, void* output, std::size_t count) {
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "reduce_rows", [&] {
    reduce_type<scalar_t>(rows, op, rows.size(), static_cast<scalar_t*>(output), count);
  });
}

at::ScalarType partial_dtype(at::ScalarType dtype) {
  return c10::isReducedFloatingType(dtype) ? at::kFloat : dtype;
}

void reduce_some_rows(Rows rows, at::ScalarType dtype, ReduceOp op, void* partial, std::size_t count) {
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "reduce_some_rows", [&] {
    reduce_type<scalar_t>(rows, op, 1, static_cast<Partial<scalar_t>*>(partial), count);
  });
}

void reduce_partials(Rows rows, at::ScalarType dtype, ReduceOp op, std::size_t ranks, void* output,
                     std::size_t count) {
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "reduce_partials", [&] {
    reduce_type<Partial<scalar_t>>(rows, op, ranks, static_cast<scalar_t*>(output), count);
  });
}

}  // namespace lockstep::detail
