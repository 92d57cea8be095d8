#include "optim/narrowing.h"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "optim/kernel_targets.h"

namespace lockstep::detail {
namespace {

constexpr std::int32_t kInfinite = 0x7f800000;  // the bits of float32's

// Half of the last place that stays is added, less a bit where that place is even.
struct ToBFloat16 {
  static LOCKSTEP_INLINE std::uint16_t narrowed(float number) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    return static_cast<std::uint16_t>(static_cast<std::int32_t>(bits & 0x7fffffffU) > kInfinite ? 0x7fc0U
                                                                                                : rounded);
  }
};

// Without branches, for vectors. Adding 0.5 leaves the places that a subnormal number of float16 has.
struct ToFloat16 {
  static LOCKSTEP_INLINE std::uint16_t narrowed(float number) {
    const auto bits = std::bit_cast<std::int32_t>(number);
    const std::int32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    const auto carried = static_cast<std::uint32_t>(magnitude) + 0xfffU + ((magnitude >> 13) & 1U);
    const auto rounded = static_cast<std::int32_t>(carried >> 13);
    const std::int32_t shifted = rounded - (112 << 10);  // exponents are 112 apart
    const std::int32_t raised = std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + 0.5F);
    const std::int32_t subnormal = raised - 0x3f000000;
    const std::int32_t bounded = chosen(shifted < kInfinite16, shifted, kInfinite16);
    const std::int32_t finite = chosen(magnitude < 0x38800000, subnormal, bounded);
    return static_cast<std::uint16_t>(sign | chosen(magnitude > kInfinite, 0x7e00, finite));
  }

 private:
  static constexpr std::int32_t kInfinite16 = 0x7c00;
  static LOCKSTEP_INLINE std::int32_t chosen(bool which, std::int32_t yes, std::int32_t no) {
    const std::int32_t mask = -static_cast<std::int32_t>(which);
    return (yes & mask) | (no & ~mask);
  }
};

template <class To>
struct Narrow {
  static LOCKSTEP_INLINE void run(const float* from, void* elements, std::int64_t begin, std::int64_t end) {
    const float* __restrict numbers = from;
    auto* __restrict to = static_cast<std::uint16_t*>(elements);
    for (std::int64_t i = begin; i < end; ++i) to[i] = To::narrowed(numbers[i]);
  }
};

#if defined(__x86_64__)
// One instruction for 8 elements, where it takes some 20. Returns the end of what it has done.
__attribute__((target("avx,f16c"))) std::int64_t narrow_by_f16c(const float* from, std::uint16_t* to,
                                                                std::int64_t begin, std::int64_t end) {
  for (; begin + 8 <= end; begin += 8) {
    const auto narrowed = _mm256_cvtps_ph(_mm256_loadu_ps(from + begin), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + begin), narrowed);
  }
  return begin;
}

bool has_f16c(Isa isa) { return isa != Isa::kBaseline && __builtin_cpu_supports("f16c"); }
#endif

void narrow_to_float16(const float* from, void* elements, std::int64_t begin, std::int64_t end, Isa isa) {
#if defined(__x86_64__)
  if (has_f16c(isa)) begin = narrow_by_f16c(from, static_cast<std::uint16_t*>(elements), begin, end);
#endif
  run_for<Narrow<ToFloat16>>(isa, from, elements, begin, end);
}

}  // namespace

void narrow(const float* from, const NarrowElements& to, std::int64_t begin, std::int64_t end, Isa isa) {
  if (to.type == NarrowType::kFloat16) return narrow_to_float16(from, to.elements, begin, end, isa);
  run_for<Narrow<ToBFloat16>>(isa, from, to.elements, begin, end);
}

}  // namespace lockstep::detail
