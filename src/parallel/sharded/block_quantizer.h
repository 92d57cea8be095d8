// Numbers as small integers: blocks of float32 with a scale for each, of ZeRO++ (arXiv:2306.10209). Free of
// torch.
//
// A code times its block's scale is the number, within half a scale: a scale is the largest magnitude of the
// block over the largest code. What is not finite makes the scale NaN, and so all numbers of its block:
// whoever looks for an overflow must still find it. Blocks whose numbers are all below 1.2e-36 in magnitude
// become zeros.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>

#include "optim/kernels.h"

namespace lockstep::detail {

/// Numbers that share a scale, which costs 1/64 byte for each. DeepSpeed's blocks are whole rows of a
/// gradient and some 4,000 numbers of weights (partition_parameters.py, target_group_size); with fewer, one
/// large number spoils less. Divides the blocks between which shards are cut.
inline constexpr std::int64_t kQuantizedBlock = 256;

/// Bits of a code: -127..127, or -7..7 with two in a byte.
enum class CodeBits { k4 = 4, k8 = 8 };

/// The largest code.
constexpr float largest_code(CodeBits bits) { return bits == CodeBits::k8 ? 127.0F : 7.0F; }

/// Blocks whose numbers are all smaller become zeros: the inverse of a scale might be infinite.
inline constexpr float kSmallestMagnitude = 1.2e-36F;

/// Added to a number, it leaves the nearest integer, its code, in the lowest bits of the sum.
inline constexpr float kCodeRounder = 12582912.0F;  // 1.5 * 2^23

/// Of a number of elements; a last block that is not full counts as if it were.
constexpr std::int64_t block_count(std::int64_t elements) {
  return (elements + kQuantizedBlock - 1) / kQuantizedBlock;
}
constexpr std::int64_t code_bytes(std::int64_t elements, CodeBits bits) {
  return block_count(elements) * kQuantizedBlock * static_cast<std::int64_t>(bits) / 8;
}

/// Writes code_bytes() of codes and block_count() scales. All instruction sets give the same bits. Exported
/// for tests, as the others.
LOCKSTEP_API void quantize(const float* values, std::int64_t elements, CodeBits bits, std::uint8_t* codes,
                           float* scales, Isa isa = best_isa());

/// What they stand for.
LOCKSTEP_API void dequantize(const std::uint8_t* codes, const float* scales, std::int64_t elements,
                             CodeBits bits, float* values, Isa isa = best_isa());

/// The same, added to `sums`.
LOCKSTEP_API void add_dequantized(const std::uint8_t* codes, const float* scales, std::int64_t elements,
                                  CodeBits bits, float* sums, Isa isa = best_isa());

}  // namespace lockstep::detail
