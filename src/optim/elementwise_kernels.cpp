// The kernels that work element by element: steps of optimizers, the reading of gradients, and the rounding
// to 16 bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "optim/kernel_targets.h"
#include "optim/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::detail {
namespace {

template <class T>
LOCKSTEP_INLINE void update_elements(const AdamSegment<T>& s, const T* __restrict grad, std::int64_t begin,
                                     std::int64_t end) {
  T* __restrict param = s.param;
  T* __restrict exp_avg = s.exp_avg;
  T* __restrict exp_avg_sq = s.exp_avg_sq;
  const auto scale = static_cast<T>(s.by.grad_scale), l2 = static_cast<T>(s.by.l2);
  const auto decay = static_cast<T>(s.by.decay), eps = static_cast<T>(s.by.eps);
  const auto beta1 = static_cast<T>(s.by.beta1), rest1 = static_cast<T>(1.0 - s.by.beta1);
  const auto beta2 = static_cast<T>(s.by.beta2), rest2 = static_cast<T>(1.0 - s.by.beta2);
  const auto step_size = static_cast<T>(s.by.step_size), root_bias2 = static_cast<T>(s.by.root_bias2);
  for (std::int64_t i = begin; i < end; ++i) {
    const T p = param[i] * decay;
    T g = scale * grad[i - begin];
    if (l2 != 0) g += l2 * param[i];
    const T m = beta1 * exp_avg[i] + rest1 * g;
    const T v = beta2 * exp_avg_sq[i] + rest2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    param[i] = p - step_size * m / (std::sqrt(v) / root_bias2 + eps);
  }
}

template <class T>
LOCKSTEP_INLINE void update_elements(const SgdSegment<T>& s, const T* __restrict grad, std::int64_t begin,
                                     std::int64_t end) {
  T* __restrict param = s.param;
  T* __restrict buffer = s.momentum_buffer;
  const auto scale = static_cast<T>(s.by.grad_scale), l2 = static_cast<T>(s.by.l2),
             lr = static_cast<T>(s.by.lr);
  const auto momentum = static_cast<T>(s.by.momentum), gradient = static_cast<T>(s.by.gradient);
  const auto lookahead = static_cast<T>(s.by.lookahead);
  const bool nesterov = s.by.nesterov;
  if (buffer == nullptr) {
    for (std::int64_t i = begin; i < end; ++i) {
      T g = scale * grad[i - begin];
      if (l2 != 0) g += l2 * param[i];
      param[i] -= lr * g;
    }
    return;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    T g = scale * grad[i - begin];
    if (l2 != 0) g += l2 * param[i];
    const T b = momentum * buffer[i] + gradient * g;
    buffer[i] = b;
    param[i] -= lr * (nesterov ? g + lookahead * b : b);
  }
}

template <class T>
LOCKSTEP_INLINE void update_elements(const AdagradSegment<T>& s, const T* __restrict grad, std::int64_t begin,
                                     std::int64_t end) {
  T* __restrict param = s.param;
  T* __restrict sum = s.sum;
  const auto scale = static_cast<T>(s.by.grad_scale), l2 = static_cast<T>(s.by.l2);
  const auto step_size = static_cast<T>(s.by.step_size), eps = static_cast<T>(s.by.eps);
  for (std::int64_t i = begin; i < end; ++i) {
    T g = scale * grad[i - begin];
    if (l2 != 0) g += l2 * param[i];
    const T squares = sum[i] + g * g;
    sum[i] = squares;
    param[i] -= step_size * g / (std::sqrt(squares) + eps);
  }
}

template <class T>
LOCKSTEP_INLINE void update_elements(const LionSegment<T>& s, const T* __restrict grad, std::int64_t begin,
                                     std::int64_t end) {
  T* __restrict param = s.param;
  T* __restrict exp_avg = s.exp_avg;
  const auto scale = static_cast<T>(s.by.grad_scale), decay = static_cast<T>(s.by.decay);
  const auto beta1 = static_cast<T>(s.by.beta1), rest1 = static_cast<T>(1.0 - s.by.beta1);
  const auto beta2 = static_cast<T>(s.by.beta2), rest2 = static_cast<T>(1.0 - s.by.beta2);
  const auto lr = static_cast<T>(s.by.lr);
  for (std::int64_t i = begin; i < end; ++i) {
    const T g = scale * grad[i - begin];
    const T direction = beta1 * exp_avg[i] + rest1 * g;
    const T step = direction > 0 ? lr : direction < 0 ? -lr : T(0);
    param[i] = param[i] * decay - step;
    exp_avg[i] = beta2 * exp_avg[i] + rest2 * g;
  }
}

struct Update {
  template <class Segment, class T>
  static LOCKSTEP_INLINE void run(const Segment& segment, const T* grad, std::int64_t begin,
                                  std::int64_t end) {
    update_elements(segment, grad, begin, end);
  }
};

template <class Segment, class T>
void update_in_runs(const Segment& segment, GradientReader<T>& gradients, std::int64_t begin,
                    std::int64_t end, Isa isa) {
  for (const auto run = gradients.run(end - begin); begin < end; begin += run) {
    const auto stop = std::min(end, begin + run);
    run_for<Update>(isa, segment, gradients.read(begin, stop - begin), begin, stop);
  }
}

// The copy follows run by run: loops that store elements of two sizes are slower.
template <class Segment>
void update_with_copy(const Segment& segment, GradientReader<float>& gradients, std::int64_t begin,
                      std::int64_t end, Isa isa) {
  constexpr std::int64_t kElementsInCache = 2048;  // with gradient and state
  for (; begin < end; begin += kElementsInCache) {
    const auto stop = std::min(end, begin + kElementsInCache);
    update_in_runs(segment, gradients, begin, stop, isa);
    narrow(segment.param, segment.copy, begin, stop, isa);
  }
}

template <template <class> class Segment, class T>
void update_in_runs(const Segment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa) {
  GradientReader<T> gradients(segment.grad, isa);
  if constexpr (std::is_same_v<T, float>) {
    if (segment.copy.elements != nullptr) return update_with_copy(segment, gradients, begin, end, isa);
  }
  update_in_runs(segment, gradients, begin, end, isa);
}

constexpr std::int64_t kLanes = 16;

double sum_of_lanes(double* lanes) {
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

struct AddSquares {
  template <class T>
  static LOCKSTEP_INLINE void run(const T* values, std::int64_t size, double* lanes) {
    std::int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      for (std::int64_t k = 0; k < kLanes; ++k) lanes[k] += double(values[i + k]) * double(values[i + k]);
    }
    for (std::int64_t k = 0; i + k < size; ++k) lanes[k] += double(values[i + k]) * double(values[i + k]);
  }
};

template <class T>
double sum_in_runs(const Gradients& gradients, std::int64_t begin, std::int64_t end, Isa isa) {
  double lanes[kLanes] = {};
  GradientReader<T> reader(gradients, isa);
  for (const auto run = reader.run(end - begin); begin < end; begin += run) {
    const auto size = std::min(run, end - begin);
    run_for<AddSquares>(isa, reader.read(begin, size), size, static_cast<double*>(lanes));
  }
  return sum_of_lanes(lanes);
}

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2")) return Isa::kAvx2;
#endif
  return Isa::kBaseline;
}

template <class T>
void update(const AdamSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa) {
  update_in_runs(segment, begin, end, isa);
}

template <class T>
void update(const SgdSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa) {
  update_in_runs(segment, begin, end, isa);
}

template <class T>
void update(const AdagradSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa) {
  update_in_runs(segment, begin, end, isa);
}

template <class T>
void update(const LionSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa) {
  update_in_runs(segment, begin, end, isa);
}

template <class T>
double square_sum(const T* values, std::int64_t size, Isa isa) {
  return sum_in_runs<T>(values, 0, size, isa);
}

double square_sum(const Gradients& gradients, std::int64_t begin, std::int64_t end, Isa isa) {
  const bool is_wide = gradients.type == GradientType::kFloat64;
  return is_wide ? sum_in_runs<double>(gradients, begin, end, isa)
                 : sum_in_runs<float>(gradients, begin, end, isa);
}

template double square_sum(const float*, std::int64_t, Isa);
template double square_sum(const double*, std::int64_t, Isa);
template void update(const AdamSegment<float>&, std::int64_t, std::int64_t, Isa);
template void update(const AdamSegment<double>&, std::int64_t, std::int64_t, Isa);
template void update(const SgdSegment<float>&, std::int64_t, std::int64_t, Isa);
template void update(const SgdSegment<double>&, std::int64_t, std::int64_t, Isa);
template void update(const AdagradSegment<float>&, std::int64_t, std::int64_t, Isa);
template void update(const AdagradSegment<double>&, std::int64_t, std::int64_t, Isa);
template void update(const LionSegment<float>&, std::int64_t, std::int64_t, Isa);
template void update(const LionSegment<double>&, std::int64_t, std::int64_t, Isa);

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
