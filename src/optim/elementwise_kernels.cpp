// The kernels of optimizers that update each element by itself, and the sum of squares, for each
// instruction set.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "optim/gradient_reader.h"
#include "optim/kernel_targets.h"
#include "optim/kernels.h"
#include "optim/narrowing.h"

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

}  // namespace lockstep::detail
