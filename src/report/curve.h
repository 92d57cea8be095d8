// The curve of a metric, reduced to few points without a visible difference, and the axes along which it is
// drawn.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/report/report.h>

namespace lockstep::detail {

/// A point of a line; finite in all three.
struct CurvePoint {
  double step = 0;
  double value = 0;
  double epoch = 0;  ///< epochs done, with the part of the one that goes on; see EpochScale
};

/// Epochs done after a step. Metrics know the number of the epoch only; how far it had come is found from
/// the last steps of all epochs. The last epoch counts as whole unless it is shorter than the one before.
class LOCKSTEP_API EpochScale {
 public:
  explicit EpochScale(std::span<const MetricCurve> curves);

  double epochs_at(double step) const;
  void apply(std::span<CurvePoint> points) const {
    for (auto& point : points) point.epoch = epochs_at(point.step);
  }

 private:
  std::vector<std::pair<double, double>> knots_;  // step, epochs done
};

/// The number of values that are not in the line, because they are not finite.
struct NotFinite {
  std::size_t count = 0;
  std::int64_t first_step = 0;
};

/// The finite points of `curve`, without epochs, and what is missing.
LOCKSTEP_API std::pair<std::vector<CurvePoint>, NotFinite> line_of(const MetricCurve& curve);

/// At most 2 * `buckets` + 2 of the points, which are by step: the first and the last, and of as many equal
/// ranges of steps the least and the largest value.
LOCKSTEP_API std::vector<CurvePoint> reduced(std::span<const CurvePoint> points, std::size_t buckets);

/// The points with an exponential moving average of their values, over about a twentieth of them.
LOCKSTEP_API std::vector<CurvePoint> smoothed(std::span<const CurvePoint> points);

/// A run among others.
struct ComparedRun {
  const RunRecord* record = nullptr;  ///< borrowed
  std::string name = {};
  EpochScale epochs;

  const RunRecord* operator->() const { return record; }
};

/// `runs`, which must outlive the result, under their names.
LOCKSTEP_API std::vector<ComparedRun> compared(const std::vector<RunRecord>& runs);

/// The names of all curves of `runs`, each once: losses first, then by name.
LOCKSTEP_API std::vector<std::string> curve_names(std::span<const ComparedRun> runs);

/// The curve called `name`; null when the run has none.
LOCKSTEP_API const MetricCurve* find_curve(const RunRecord& run, const std::string& name);

// Which curves a user wants to see.

/// `wanted`, or all curves of `runs` when it is empty.
/// @throws ConfigError naming the nearest curve, when no run has one of them
std::vector<std::string> selected_names(std::span<const ComparedRun> runs,
                                        std::span<const std::string> wanted);

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
