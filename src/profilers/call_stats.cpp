#include "profilers/call_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep::detail {

void DurationHistogram::add(std::chrono::nanoseconds duration) noexcept {
  const auto ns = static_cast<std::uint64_t>(duration.count());
  total_.add(duration);
  widen(ns, ns);
  steps_[step_of(ns)].add(1);
}

void DurationHistogram::merge(const DurationHistogram& other) noexcept {
  total_.merge(other.total_);
  widen(other.min_ns_.get(), other.max_ns_.get());
  for (std::size_t step = 0; step < steps_.size(); ++step) steps_[step].add(other.steps_[step].get());
}

void DurationHistogram::widen(std::uint64_t least_ns, std::uint64_t most_ns) noexcept {
  if (least_ns < min_ns_.get()) min_ns_.set(least_ns);
  if (most_ns > max_ns_.get()) max_ns_.set(most_ns);
}

double DurationHistogram::quantile_s(double q) const {
  const auto rank = std::max(1.0, std::ceil(q * static_cast<double>(calls())));
  std::uint64_t seen = 0;
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    seen += steps_[step].get();
    if (static_cast<double>(seen) >= rank) return std::clamp(1e-9 * middle_ns(step), min_s(), max_s());
  }
  return max_s();
}

// Below 128 each value has its step; above, each power of two has 64.
std::size_t DurationHistogram::step_of(std::uint64_t ns) {
  ns = std::min(ns, (std::uint64_t{1} << kLongest) - 1);
  if (ns < 2 * kSteps) return ns;
  const int shift = std::bit_width(ns) - 7;
  return kSteps * static_cast<std::size_t>(shift) + (ns >> shift);
}

double DurationHistogram::middle_ns(std::size_t step) {
  if (step < 2 * kSteps) return static_cast<double>(step);
  const int shift = static_cast<int>(step / kSteps) - 1;
  const double lowest = std::ldexp(static_cast<double>(step % kSteps + kSteps), shift);
  return lowest + (std::ldexp(1.0, shift) - 1) / 2;
}

}  // namespace lockstep::detail
