// What is kept of the calls of one action in one thread: counts and durations, with bounded memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// A number that one thread changes while others read it.
class Tally {
 public:
  explicit Tally(std::uint64_t value = 0) : value_(value) {}
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(std::uint64_t more) { set(get() + more); }

 private:
  std::atomic<std::uint64_t> value_;
};

/// How often and how long.
class CallTotal {
 public:
  void add(std::chrono::nanoseconds duration) noexcept {
    calls_.add(1);
    total_ns_.add(static_cast<std::uint64_t>(duration.count()));
  }
  void merge(const CallTotal& other) noexcept {
    calls_.add(other.calls_.get());
    total_ns_.add(other.total_ns_.get());
  }

  std::uint64_t calls() const { return calls_.get(); }
  double total_s() const { return 1e-9 * static_cast<double>(total_ns_.get()); }
  double mean_s() const { return total_s() / static_cast<double>(calls()); }

 private:
  Tally calls_;
  Tally total_ns_;
};

/// How durations are spread: a histogram of 23 KB, as HdrHistogram's with 64 steps per power of two. Minimum
/// and maximum are exact; a quantile is exact below 128 ns and else, up to 13 days, within 1/128 of its
/// value.
class LOCKSTEP_API DurationHistogram {
 public:
  void add(std::chrono::nanoseconds duration) noexcept;
  void merge(const DurationHistogram& other) noexcept;

  const CallTotal& total() const { return total_; }
  std::uint64_t calls() const { return total_.calls(); }
  double min_s() const { return 1e-9 * static_cast<double>(min_ns_.get()); }
  double max_s() const { return 1e-9 * static_cast<double>(max_ns_.get()); }
  /// The duration that the part `q` of the calls, in (0, 1], did not exceed.
  double quantile_s(double q) const;

 private:
  static constexpr int kLongest = 50;  // bits; longer durations count as 2^50 ns
  static constexpr std::size_t kSteps = 64;

  static std::size_t step_of(std::uint64_t ns);
  static double middle_ns(std::size_t step);
  void widen(std::uint64_t least_ns, std::uint64_t most_ns) noexcept;

  CallTotal total_;
  Tally min_ns_{UINT64_MAX};
  Tally max_ns_;
  std::array<Tally, kSteps*(kLongest - 5)> steps_;
};

}  // namespace lockstep::detail
