// float32 rounded to bfloat16, to the nearest, ties to even. For kernel sources only.
#pragma once

#include <bit>
#include <cstdint>

#include "optim/kernel_targets.h"

namespace lockstep::detail {

inline constexpr std::int32_t kInfinite = 0x7f800000;  ///< the bits of float32's

// Half of the last place that stays is added, less a bit where that place is even.
struct ToBFloat16 {
  static LOCKSTEP_INLINE std::uint16_t narrowed(float number) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    return static_cast<std::uint16_t>(static_cast<std::int32_t>(bits & 0x7fffffffU) > kInfinite ? 0x7fc0U
                                                                                                : rounded);
  }
};

}  // namespace lockstep::detail
