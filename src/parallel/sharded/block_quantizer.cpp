#include "parallel/sharded/block_quantizer.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "optim/kernel_targets.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kBlock = kQuantizedBlock;
constexpr std::int64_t kHalf = kBlock / 2;

// Magnitudes are in the order of their bits, infinity and NaN the largest.
LOCKSTEP_INLINE float scale_of(const float* values, float largest_code) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < kBlock; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff);
  const auto magnitude = std::bit_cast<float>(largest);
  if (largest >= 0x7f800000) return std::numeric_limits<float>::quiet_NaN();
  return magnitude < kSmallestMagnitude ? 0.0F : magnitude / largest_code;
}

LOCKSTEP_INLINE std::int32_t code_of(float value, float inverse) {
  return std::bit_cast<std::int32_t>(value * inverse + kCodeRounder);
}

struct Codes8 {
  static constexpr float kLargest = largest_code(CodeBits::k8);
  static constexpr std::int64_t kBytes = kBlock;

  static LOCKSTEP_INLINE void write(const float* __restrict values, float inverse,
                                    std::uint8_t* __restrict codes) {
    for (std::int64_t i = 0; i < kBlock; ++i)
      codes[i] = static_cast<std::uint8_t>(code_of(values[i], inverse));
  }
  template <class Put>
  static LOCKSTEP_INLINE void read(const std::uint8_t* __restrict codes, float scale,
                                   float* __restrict values, Put put) {
    for (std::int64_t i = 0; i < kBlock; ++i)
      put(values[i], static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale);
  }
};

// A byte holds a number of the block's first half and its counterpart of the second.
struct Codes4 {
  static constexpr float kLargest = largest_code(CodeBits::k4);
  static constexpr std::int64_t kBytes = kHalf;

  static LOCKSTEP_INLINE void write(const float* __restrict values, float inverse,
                                    std::uint8_t* __restrict codes) {
    for (std::int64_t i = 0; i < kHalf; ++i) {
      const auto low = code_of(values[i], inverse), high = code_of(values[i + kHalf], inverse);
      codes[i] = static_cast<std::uint8_t>((low & 15) | ((high & 15) << 4));
    }
  }
  template <class Put>
  static LOCKSTEP_INLINE void read(const std::uint8_t* __restrict codes, float scale,
                                   float* __restrict values, Put put) {
    for (std::int64_t i = 0; i < kHalf; ++i) {
      const std::int32_t byte = codes[i];
      put(values[i], static_cast<float>(((byte & 15) ^ 8) - 8) * scale);
      put(values[i + kHalf], static_cast<float>(((byte >> 4) ^ 8) - 8) * scale);
    }
  }
};

struct Set {
  LOCKSTEP_INLINE void operator()(float& value, float number) const { value = number; }
};
struct Add {
  LOCKSTEP_INLINE void operator()(float& value, float number) const { value += number; }
};

template <class Codes>
LOCKSTEP_INLINE void write_block(const float* values, std::uint8_t* codes, float* scale) {
  *scale = scale_of(values, Codes::kLargest);
  Codes::write(values, *scale > 0.0F ? 1.0F / *scale : 0.0F, codes);
}

template <class Codes>
struct Quantize {
  static LOCKSTEP_INLINE void run(const float* values, std::int64_t elements, std::uint8_t* codes,
                                  float* scales) {
    for (; elements >= kBlock; elements -= kBlock) {
      write_block<Codes>(values, codes, scales++);
      values += kBlock;
      codes += Codes::kBytes;
    }
    if (elements == 0) return;
    float rest[kBlock] = {};
    std::copy_n(values, elements, rest);
    write_block<Codes>(rest, codes, scales);
  }
};

template <class Codes, class Put>
struct Dequantize {
  static LOCKSTEP_INLINE void run(const std::uint8_t* codes, const float* scales, std::int64_t elements,
                                  float* values) {
    for (; elements >= kBlock; elements -= kBlock) {
      Codes::read(codes, *scales++, values, Put());
      values += kBlock;
      codes += Codes::kBytes;
    }
    if (elements == 0) return;
    float rest[kBlock] = {};
    Codes::read(codes, *scales, rest, Set());
    for (std::int64_t i = 0; i < elements; ++i) Put()(values[i], rest[i]);
  }
};

template <class Put>
void read_blocks(const std::uint8_t* codes, const float* scales, std::int64_t elements, CodeBits bits,
                 float* values, Isa isa) {
  if (bits == CodeBits::k8) {
    run_for<Dequantize<Codes8, Put>>(isa, codes, scales, elements, values);
  } else {
    run_for<Dequantize<Codes4, Put>>(isa, codes, scales, elements, values);
  }
}

}  // namespace

void quantize(const float* values, std::int64_t elements, CodeBits bits, std::uint8_t* codes, float* scales,
              Isa isa) {
  if (bits == CodeBits::k8) {
    run_for<Quantize<Codes8>>(isa, values, elements, codes, scales);
  } else {
    run_for<Quantize<Codes4>>(isa, values, elements, codes, scales);
  }
}

void dequantize(const std::uint8_t* codes, const float* scales, std::int64_t elements, CodeBits bits,
                float* values, Isa isa) {
  read_blocks<Set>(codes, scales, elements, bits, values, isa);
}

void add_dequantized(const std::uint8_t* codes, const float* scales, std::int64_t elements, CodeBits bits,
                     float* sums, Isa isa) {
  read_blocks<Add>(codes, scales, elements, bits, sums, isa);
}

}  // namespace lockstep::detail
