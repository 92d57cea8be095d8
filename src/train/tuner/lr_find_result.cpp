#include <lockstep/train/lr_find_result.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

struct Point {
  double lr;
  double loss;
};

double slope(const Point& from, const Point& to) { return (to.loss - from.loss) / (to.lr - from.lr); }

// The derivative at `i` as torch.gradient has it: inside, each neighbour's slope weighs what the other
// neighbour is away.
double derivative(const std::vector<Point>& points, std::size_t i) {
  if (i == 0) return slope(points[0], points[1]);
  if (i + 1 == points.size()) return slope(points[i - 1], points[i]);
  const double left = points[i].lr - points[i - 1].lr;
  const double right = points[i + 1].lr - points[i].lr;
  return (right * slope(points[i - 1], points[i]) + left * slope(points[i], points[i + 1])) / (left + right);
}

std::vector<Point> usable_points(const LrFindResult& result, int skip_begin, int skip_end) {
  std::vector<Point> points;
  const auto end = std::ssize(result.lr) - std::max(skip_end, 0);
  for (std::ptrdiff_t i = std::max(skip_begin, 0); i < end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (std::isfinite(result.loss[at])) points.push_back({result.lr[at], result.loss[at]});
  }
  return points;
}

}  // namespace

std::optional<double> LrFindResult::suggestion(int skip_begin, int skip_end) const {
  const auto points = usable_points(*this, skip_begin, skip_end);
  if (points.size() < 2) return std::nullopt;
  std::size_t steepest = 0;
  for (std::size_t i = 1; i < points.size(); ++i)
    if (derivative(points, i) < derivative(points, steepest)) steepest = i;
  return points[steepest].lr;
}

}  // namespace lockstep
