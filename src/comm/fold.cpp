#include "comm/fold.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace lockstep::detail {
namespace {

constexpr std::size_t kBlock = 512;  // elements; a block of every rank stays in the first-level cache

template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t,
                                std::conditional_t<std::is_same_v<T, double>, double, float>>;

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

template <class W, class Combine>
void fold_block(std::vector<std::array<W, kBlock>>& rows, Combine combine) {
  for (std::size_t stride = 1; stride < rows.size(); stride *= 2) {
    for (std::size_t i = 0; i + stride < rows.size(); i += 2 * stride) {
      W* const into = rows[i].data();
      const W* const from = rows[i + stride].data();
      for (std::size_t k = 0; k < kBlock; ++k) into[k] = combine(into[k], from[k]);
    }
  }
}

template <class T, class Combine>
void fold_as(const Rows& rows, T* output, std::size_t count, bool is_average, Combine combine) {
  using W = Wide<T>;
  // Zeros beyond a short last block are combined as well, and thrown away.
  std::vector<std::array<W, kBlock>> block(static_cast<std::size_t>(rows.ranks));
  const T* const data = static_cast<const T*>(rows.data);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    for (std::size_t rank = 0; rank < block.size(); ++rank) {
      const T* const from = data + rank * rows.row_elements + begin;
      for (std::size_t k = 0; k < length; ++k) block[rank][k] = static_cast<W>(from[k]);
    }
    fold_block(block, combine);
    if (is_average) {
      for (auto& value : block[0]) value /= static_cast<W>(rows.ranks);
    }
    for (std::size_t k = 0; k < length; ++k) output[begin + k] = static_cast<T>(block[0][k]);
  }
}

}  // namespace

void fold(const Rows& rows, at::ScalarType dtype, ReduceOp op, void* output, std::size_t count) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "fold", [&] {
    auto* const out = static_cast<scalar_t*>(output);
    switch (op) {
      case ReduceOp::kSum:
        return fold_as(rows, out, count, false, Add{});
      case ReduceOp::kAvg:
        return fold_as(rows, out, count, true, Add{});
      case ReduceOp::kMin:
        return fold_as(rows, out, count, false, Min{});
      case ReduceOp::kMax:
        return fold_as(rows, out, count, false, Max{});
      case ReduceOp::kProduct:
        return fold_as(rows, out, count, false, Multiply{});
    }
  });
}

}  // namespace lockstep::detail
