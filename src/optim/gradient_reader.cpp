#include "optim/gradient_reader.h"

#include <bit>

#include "optim/kernel_targets.h"

namespace lockstep::detail {
namespace {

struct FromBFloat16 {
  using Element = std::uint16_t;
  static LOCKSTEP_INLINE float widened(Element bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// Without branches, for vectors, and without subnormal numbers of float32, which a processor may be set to
// take for zeros.
struct FromFloat16 {
  using Element = std::uint16_t;
  static LOCKSTEP_INLINE float widened(Element bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16, magnitude = bits & 0x7fffU;
    const float units = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(units);
    const std::uint32_t normal = (magnitude << 13) + (112U << 23);  // exponents are 112 apart
    const std::uint32_t special = (magnitude << 13) | 0x7f800000U;  // infinite, or no number
    const std::uint32_t finite = magnitude < 0x0400U ? subnormal : normal;
    return std::bit_cast<float>(sign | (magnitude < 0x7c00U ? finite : special));
  }
};

template <class Number>
struct AsItIs {
  using Element = Number;
  static LOCKSTEP_INLINE Number widened(Element number) { return number; }
};

template <class From>
struct Convert {
  template <class T>
  static LOCKSTEP_INLINE void run(const void* elements, std::int64_t begin, std::int64_t size, T* run) {
    const auto* __restrict from = static_cast<const typename From::Element*>(elements) + begin;
    T* __restrict to = run;
    for (std::int64_t i = 0; i < size; ++i) to[i] = static_cast<T>(From::widened(from[i]));
  }
};

}  // namespace

template <class T>
void GradientReader<T>::convert(std::int64_t begin, std::int64_t size) {
  const auto convert_from = [&]<class From>(From) {
    run_for<Convert<From>>(isa_, gradients_.elements, begin, size, static_cast<T*>(run_));
  };
  switch (gradients_.type) {
    case GradientType::kBFloat16:
      return convert_from(FromBFloat16{});
    case GradientType::kFloat16:
      return convert_from(FromFloat16{});
    case GradientType::kFloat32:
      return convert_from(AsItIs<float>{});
    case GradientType::kFloat64:
      return convert_from(AsItIs<double>{});
  }
}

template class GradientReader<float>;
template class GradientReader<double>;

}  // namespace lockstep::detail
