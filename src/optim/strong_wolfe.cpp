#include "optim/strong_wolfe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr double kSufficientDecrease = 1e-4;
constexpr double kCurvature = 0.9;
constexpr int kMaxIterations = 25;

struct Bounds {
  double low;
  double high;
};

Bounds between(const LinePoint& a, const LinePoint& b) {
  return {std::min(a.length, b.length), std::max(a.length, b.length)};
}

// Where the cubic through both points, with their slopes, is lowest.
double cubic_minimum(const LinePoint& a, const LinePoint& b, const Bounds& bounds) {
  const auto& left = a.length <= b.length ? a : b;
  const auto& right = a.length <= b.length ? b : a;
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.length - b.length);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (bounds.low + bounds.high) / 2;
  const double d2 = std::sqrt(square);
  const double part = (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2);
  return std::min(std::max(right.length - (right.length - left.length) * part, bounds.low), bounds.high);
}

class Search {
 public:
  Search(const LinePoint& start, double direction_max, double tolerance_change,
         const std::function<LinePoint(double)>& evaluate)
      : start_(start),
        direction_max_(direction_max),
        tolerance_change_(tolerance_change),
        evaluate_(evaluate) {}

  LineSearchResult run(double first_length) {
    if (const auto found = find_bracket(first_length)) return {*found, evaluations_};
    return {narrow(), evaluations_};
  }

 private:
  LinePoint at(double length) {
    ++evaluations_;
    return evaluate_(length);
  }

  bool lowers_too_little(const LinePoint& point) const {
    return point.loss > start_.loss + kSufficientDecrease * point.length * start_.slope;
  }
  bool is_flat(const LinePoint& point) const { return std::abs(point.slope) <= -kCurvature * start_.slope; }

  // Longer and longer steps; a point that meets the conditions, or none and a bracket around one.
  std::optional<LinePoint> find_bracket(double length) {
    auto previous = start_;
    auto point = at(length);
    for (; iterations_ < kMaxIterations; ++iterations_) {
      const bool rises = lowers_too_little(point) || (iterations_ > 1 && point.loss >= previous.loss);
      if (!rises && is_flat(point)) return point;
      if (rises || point.slope >= 0) {
        bracket_ = {previous, point};
        return std::nullopt;
      }
      const double next = cubic_minimum(
          previous, point, {point.length + 0.01 * (point.length - previous.length), point.length * 10});
      previous = std::exchange(point, at(next));
    }
    bracket_ = {start_, point};
    return std::nullopt;
  }

  // A length within the bracket; not too near to its ends twice in a row.
  double next_length() {
    const auto bounds = between(bracket_[0], bracket_[1]);
    const double length = cubic_minimum(bracket_[0], bracket_[1], bounds);
    const double margin = 0.1 * (bounds.high - bounds.low);
    if (std::min(bounds.high - length, length - bounds.low) >= margin) {
      stalled_ = false;
      return length;
    }
    if (!std::exchange(stalled_, true) && length < bounds.high && length > bounds.low) return length;
    stalled_ = false;
    return std::abs(length - bounds.high) < std::abs(length - bounds.low) ? bounds.high - margin
                                                                          : bounds.low + margin;
  }

  LinePoint narrow() {
    std::size_t low = bracket_[0].loss <= bracket_[1].loss ? 0 : 1;
    while (iterations_ < kMaxIterations) {
      const auto bounds = between(bracket_[0], bracket_[1]);
      if ((bounds.high - bounds.low) * direction_max_ < tolerance_change_) break;
      const auto point = at(next_length());
      ++iterations_;
      const std::size_t high = 1 - low;
      if (lowers_too_little(point) || point.loss >= bracket_[low].loss) {
        bracket_[high] = point;
        low = bracket_[0].loss <= bracket_[1].loss ? 0 : 1;
        continue;
      }
      if (is_flat(point)) return point;
      if (point.slope * (bracket_[high].length - bracket_[low].length) >= 0) bracket_[high] = bracket_[low];
      bracket_[low] = point;
    }
    return bracket_[low];
  }

  const LinePoint& start_;
  double direction_max_;
  double tolerance_change_;
  const std::function<LinePoint(double)>& evaluate_;
  std::array<LinePoint, 2> bracket_;
  bool stalled_ = false;
  int iterations_ = 0;
  int evaluations_ = 0;
};

}  // namespace

LineSearchResult strong_wolfe(const LinePoint& start, double first_length, double direction_max,
                              double tolerance_change,
                              const std::function<LinePoint(double length)>& evaluate) {
  return Search(start, direction_max, tolerance_change, evaluate).run(first_length);
}

}  // namespace lockstep::detail
