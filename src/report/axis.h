// An axis: maps values to places along it, and chooses round numbers for its labels.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

struct Tick {
  double place = 0;  ///< 0 at the axis' low end, 1 at its high end
  std::string label = {};
};

/// An axis that shows the values from `low` to `high`.
class LOCKSTEP_API Axis {
 public:
  /// A linear axis. An empty or impossible range is widened.
  static Axis linear(double low, double high);
  /// For the values of curves, with room at both ends: logarithmic when they are positive and `may_be_log`
  /// and span more than three powers of ten.
  static Axis of_values(double low, double high, bool may_be_log);

  /// Where `value` stands: 0 at the low end, 1 at the high end.
  double place(double value) const;
  bool is_log() const { return is_log_; }
  double low() const { return low_; }
  double high() const { return high_; }
  /// About `wanted` round numbers, and at least one.
  std::vector<Tick> ticks(int wanted) const;

 private:
  Axis(double low, double high, bool is_log) : low_(low), high_(high), is_log_(is_log) {}

  std::vector<Tick> linear_ticks(int wanted) const;
  std::vector<Tick> log_ticks(int wanted) const;

  double low_;
  double high_;
  bool is_log_;
};

/// `12.5k`, `3M`, `0.25`, `1e-05`: at most `digits` that count.
LOCKSTEP_API std::string short_number(double number, int digits = 4);

}  // namespace lockstep::detail
