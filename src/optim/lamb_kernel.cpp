#include "optim/lamb_kernel.h"

#include <algorithm>
#include <cmath>

#include "optim/kernel_targets.h"

namespace lockstep::detail {
namespace {

template <class T>
LOCKSTEP_INLINE T lamb_update(T exp_avg, T exp_avg_sq, T param, T eps, bool eps_inside_sqrt, T weight_decay) {
  const T denominator = eps_inside_sqrt ? std::sqrt(exp_avg_sq + eps) : std::sqrt(exp_avg_sq) + eps;
  return exp_avg / denominator + weight_decay * param;
}

// Leaves the updates of elements [begin, end) in `updates`.
struct Moments {
  template <class T>
  static LOCKSTEP_INLINE void run(const LambSegment<T>& s, const T* gradients, std::int64_t begin,
                                  std::int64_t end, T* updates) {
    const T* __restrict param = s.param;
    const T* __restrict grad = gradients;
    T* __restrict exp_avg = s.exp_avg;
    T* __restrict exp_avg_sq = s.exp_avg_sq;
    T* __restrict update = updates;
    const auto scale = static_cast<T>(s.by.grad_scale), eps = static_cast<T>(s.by.eps);
    const auto beta1 = static_cast<T>(s.by.beta1), rest1 = static_cast<T>(1.0 - s.by.beta1);
    const auto beta2 = static_cast<T>(s.by.beta2), rest2 = static_cast<T>(1.0 - s.by.beta2);
    const auto weight_decay = static_cast<T>(s.by.weight_decay);
    const bool inside = s.by.eps_inside_sqrt;
    for (std::int64_t i = begin; i < end; ++i) {
      const T g = scale * grad[i - begin];
      const T m = beta1 * exp_avg[i] + rest1 * g;
      const T v = beta2 * exp_avg_sq[i] + rest2 * g * g;
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      update[i - begin] = lamb_update(m, v, param[i], eps, inside, weight_decay);
    }
  }
};

struct Apply {
  template <class T>
  static LOCKSTEP_INLINE void run(const LambSegment<T>& s, std::int64_t begin, std::int64_t end, T length) {
    T* __restrict param = s.param;
    const T* __restrict exp_avg = s.exp_avg;
    const T* __restrict exp_avg_sq = s.exp_avg_sq;
    const auto eps = static_cast<T>(s.by.eps), weight_decay = static_cast<T>(s.by.weight_decay);
    const bool inside = s.by.eps_inside_sqrt;
    for (std::int64_t i = begin; i < end; ++i) {
      param[i] -= length * lamb_update(exp_avg[i], exp_avg_sq[i], param[i], eps, inside, weight_decay);
    }
  }
};

static_assert(kLambBlock <= GradientReader<float>::kRun, "a block is read at once");

}  // namespace

template <class T>
void update_moments(const LambSegment<T>& segment, std::int64_t begin, std::int64_t end, Isa isa,
                    LambSquares* blocks) {
  T updates[kLambBlock];
  GradientReader<T> gradients(segment.grad, isa);
  for (std::int64_t at = begin; at < end; at += kLambBlock) {
    const auto size = std::min(kLambBlock, end - at);
    run_for<Moments>(isa, segment, gradients.read(at, size), at, at + size, static_cast<T*>(updates));
    *blocks++ = {.param = square_sum(segment.param + at, size, isa),
                 .update = square_sum(updates, size, isa)};
  }
}

LambSquares sum_of(std::span<const LambSquares> blocks) {
  constexpr std::size_t kRow = 16;
  LambSquares all;
  for (std::size_t at = 0; at < blocks.size(); at += kRow) {
    LambSquares row;
    for (const auto& block : blocks.subspan(at, std::min(kRow, blocks.size() - at))) {
      row.param += block.param;
      row.update += block.update;
    }
    all.param += row.param;
    all.update += row.update;
  }
  return all;
}

double trust_ratio(const LambSquares& sums, const LambCoefficients& by) {
  if (sums.param == 0.0 || sums.update == 0.0) return 1.0;
  return std::clamp(std::sqrt(sums.param) / std::sqrt(sums.update), by.min_ratio, by.max_ratio);
}

double lamb_step_size(double lr, double beta1, double beta2, double step, bool bias_correction) {
  if (!bias_correction) return lr;
  return lr * std::sqrt(1.0 - std::pow(beta2, step)) / (1.0 - std::pow(beta1, step));
}

template <class T>
void apply_update(const LambSegment<T>& segment, std::int64_t begin, std::int64_t end, double ratio,
                  Isa isa) {
  run_for<Apply>(isa, segment, begin, end, static_cast<T>(segment.by.step_size * ratio));
}

template void update_moments(const LambSegment<float>&, std::int64_t, std::int64_t, Isa, LambSquares*);
template void update_moments(const LambSegment<double>&, std::int64_t, std::int64_t, Isa, LambSquares*);
template void apply_update(const LambSegment<float>&, std::int64_t, std::int64_t, double, Isa);
template void apply_update(const LambSegment<double>&, std::int64_t, std::int64_t, double, Isa);

}  // namespace lockstep::detail
