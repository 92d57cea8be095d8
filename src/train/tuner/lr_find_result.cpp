// The result of a sweep of learning rates, and its picture.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include <lockstep/base/atomic_file.h>
#include <lockstep/train/tuner_options.h>

#include "report/curve.h"

namespace lockstep {
namespace {

struct Point {
  double lr;
  double loss;
};

double slope(const Point& from, const Point& to) { return (to.loss - from.loss) / (to.lr - from.lr); }

// The derivative at `i` as torch.gradient computes it: inside, each neighbour's slope is weighted by the
// distance of the other neighbour.
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

namespace {

using detail::Axis;

constexpr double kWidth = 720, kHeight = 440;
constexpr double kLeft = 80, kRight = 24, kTop = 24, kBottom = 64;  // margins around the curve

Axis axis_of(const std::vector<double>& values, bool may_be_log) {
  double low = INFINITY, high = -INFINITY;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return low <= high ? Axis::of_values(low, high, may_be_log) : Axis::linear(0, 1);
}

class Picture {
 public:
  explicit Picture(const LrFindResult& result)
      : result_(result),
        x_(axis_of(result.lr, result.mode == LrFindMode::kExponential)),
        y_(axis_of(result.loss, false)) {
    svg_ << std::fixed << std::setprecision(1);
    svg_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << kHeight
         << "\" viewBox=\"0 0 " << kWidth << ' ' << kHeight
         << "\" font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  }

  std::string draw() {
    draw_x_axis();
    draw_y_axis();
    draw_curve();
    if (const auto lr = result_.suggestion()) mark(*lr);
    svg_ << "</svg>\n";
    return svg_.str();
  }

 private:
  static double across(double place) { return kLeft + place * (kWidth - kLeft - kRight); }
  static double down(double place) { return kTop + (1 - place) * (kHeight - kTop - kBottom); }

  void line(double x1, double y1, double x2, double y2, const char* colour) {
    svg_ << "<line x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2 << "\" y2=\"" << y2 << "\" stroke=\""
         << colour << "\"/>\n";
  }
  void text(double x, double y, const std::string& words, const std::string& more = "") {
    svg_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"middle\"" << more << '>' << words
         << "</text>\n";
  }

  void draw_x_axis() {
    for (const auto& tick : x_.ticks(8)) {
      line(across(tick.place), down(0), across(tick.place), down(1), "#e5e5e5");
      text(across(tick.place), down(0) + 20, tick.label);
    }
    line(across(0), down(0), across(1), down(0), "black");
    text(across(0.5), kHeight - 14, x_.is_log() ? "Learning rate (logarithmic)" : "Learning rate");
  }
  void draw_y_axis() {
    for (const auto& tick : y_.ticks(6)) {
      line(across(0), down(tick.place), across(1), down(tick.place), "#e5e5e5");
      text(kLeft - 30, down(tick.place) + 4, tick.label);
    }
    line(across(0), down(0), across(0), down(1), "black");
    text(18, down(0.5), "Loss", " transform=\"rotate(-90 18 " + std::to_string(down(0.5)) + ")\"");
  }

  void draw_curve() {
    svg_ << "<polyline fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"2\" points=\"";
    for (std::size_t i = 0; i < result_.lr.size(); ++i) {
      if (std::isfinite(result_.loss[i]))
        svg_ << across(x_.place(result_.lr[i])) << ',' << down(y_.place(result_.loss[i])) << ' ';
    }
    svg_ << "\"/>\n";
  }

  void mark(double lr) {
    const auto at = std::ranges::find(result_.lr, lr) - result_.lr.begin();
    const double x = across(x_.place(lr));
    const double y = down(y_.place(result_.loss[static_cast<std::size_t>(at)]));
    svg_ << "<circle cx=\"" << x << "\" cy=\"" << y << "\" r=\"6\" fill=\"red\"/>\n";
    text(std::clamp(x, kLeft + 70, kWidth - 90), std::max(y - 14, kTop + 12),
         "suggestion " + detail::short_number(lr));
  }

  const LrFindResult& result_;
  Axis x_, y_;
  std::ostringstream svg_;
};

}  // namespace

void LrFindResult::plot(const std::filesystem::path& file) const {
  write_file_atomically(file, Picture(*this).draw());
}

}  // namespace lockstep
