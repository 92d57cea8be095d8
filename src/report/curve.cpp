#include "report/curve.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include <lockstep/base/error.h>

#include "formats/file_text.h"

namespace lockstep::detail {

EpochScale::EpochScale(std::span<const MetricCurve> curves) {
  std::map<std::int64_t, std::int64_t> last_steps;  // of each epoch
  for (const auto& curve : curves) {
    for (std::size_t i = 0; i < curve.points.size(); ++i) {  // by step: the last one of an epoch is enough
      const auto& point = curve.points[i];
      if (i + 1 < curve.points.size() && curve.points[i + 1].epoch == point.epoch) continue;
      auto& last = last_steps.try_emplace(point.epoch, point.step).first->second;
      last = std::max(last, point.step);
    }
  }
  knots_.emplace_back(-1, 0);
  for (const auto& [epoch, step] : last_steps) {
    if (static_cast<double>(step) > knots_.back().first) knots_.emplace_back(step, epoch + 1);
  }
  if (knots_.size() < 3) return;
  const auto& [before, last] = std::pair(knots_.end()[-2], knots_.end()[-1]);
  const auto& start = knots_.end()[-3];
  const double usual = (before.first - start.first) / (before.second - start.second);  // steps of an epoch
  if (last.first - before.first < usual)
    knots_.back().second = before.second + (last.first - before.first) / usual;
}

double EpochScale::epochs_at(double step) const {
  if (knots_.size() < 2) return 0;
  auto right = std::ranges::lower_bound(knots_, step, {}, &std::pair<double, double>::first);
  right = std::clamp(right, knots_.begin() + 1, knots_.end() - 1);
  const auto& [x0, y0] = right[-1];
  const auto& [x1, y1] = right[0];
  return y0 + (y1 - y0) * (step - x0) / (x1 - x0);
}

std::pair<std::vector<CurvePoint>, NotFinite> line_of(const MetricCurve& curve) {
  std::vector<CurvePoint> points;
  points.reserve(curve.points.size());
  NotFinite missing;
  for (const auto& point : curve.points) {
    if (std::isfinite(point.value)) {
      points.push_back({.step = static_cast<double>(point.step), .value = point.value});
    } else if (missing.count++ == 0) {
      missing.first_step = point.step;
    }
  }
  return {std::move(points), missing};
}

std::vector<CurvePoint> reduced(std::span<const CurvePoint> points, std::size_t buckets) {
  if (points.size() <= 2 * buckets + 2) return {points.begin(), points.end()};
  const double first = points.front().step;
  const double width = (points.back().step - first) / static_cast<double>(buckets);
  std::vector<CurvePoint> kept{points.front()};
  const auto inner = points.subspan(1, points.size() - 2);
  for (auto begin = inner.begin(); begin != inner.end();) {
    const auto bucket = width > 0 ? std::floor((begin->step - first) / width) : 0;
    const auto end = std::find_if(begin, inner.end(), [&](const CurvePoint& point) {
      return width > 0 && std::floor((point.step - first) / width) != bucket;
    });
    auto [least, largest] = std::ranges::minmax_element(begin, end, {}, &CurvePoint::value);
    if (largest < least) std::swap(least, largest);
    kept.push_back(*least);
    if (largest != least) kept.push_back(*largest);
    begin = end;
  }
  kept.push_back(points.back());
  return kept;
}

// The first values count for less, so that the line begins among them: average / (1 - decay^n).
std::vector<CurvePoint> smoothed(std::span<const CurvePoint> points) {
  constexpr double kShare = 0.05;
  constexpr double kShortest = 5;
  const double decay = 1 - 2 / (std::max(kShortest, kShare * static_cast<double>(points.size())) + 1);
  std::vector<CurvePoint> smooth(points.begin(), points.end());
  double sum = 0, weight = 0;
  for (auto& point : smooth) {
    sum = decay * sum + (1 - decay) * point.value;
    weight = decay * weight + (1 - decay);
    point.value = sum / weight;
  }
  return smooth;
}

std::vector<ComparedRun> compared(const std::vector<RunRecord>& runs) {
  auto names = run_names(runs);
  std::vector<ComparedRun> all;
  for (std::size_t i = 0; i < runs.size(); ++i)
    all.push_back({.record = &runs[i], .name = std::move(names[i]), .epochs = EpochScale(runs[i].curves)});
  return all;
}

std::vector<std::string> curve_names(std::span<const ComparedRun> runs) {
  std::set<std::string> sorted;
  for (const auto& run : runs) {
    for (const auto& curve : run->curves) sorted.insert(curve.name);
  }
  std::vector<std::string> names(sorted.begin(), sorted.end());
  std::ranges::stable_partition(
      names, [](const std::string& name) { return name.find("loss") != std::string::npos; });
  return names;
}

const MetricCurve* find_curve(const RunRecord& run, const std::string& name) {
  const auto found = std::ranges::lower_bound(run.curves, name, {}, &MetricCurve::name);
  return found != run.curves.end() && found->name == name ? &*found : nullptr;
}

std::vector<std::string> selected_names(std::span<const ComparedRun> runs,
                                        std::span<const std::string> wanted) {
  auto names = curve_names(runs);
  if (wanted.empty()) return names;
  for (const auto& name : wanted) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw ConfigError("report", {.what = "no run has a metric " + in_quotes(name),
                                 .expected = "a column of metrics.csv",
                                 .hint = did_you_mean(nearest_name(name, names))});
  }
  return {wanted.begin(), wanted.end()};
}

namespace {

// 1, 2 or 5 times a power of ten, at least `wanted`.
double round_distance(double wanted) {
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= wanted * (1 - 1e-9)) return digit * power;
  }
  return 10 * power;
}

}  // namespace

Axis Axis::linear(double low, double high) {
  if (high - low > 1e-12 * std::max(std::abs(low), std::abs(high)) && std::isfinite(high - low))
    return {low, high, false};
  const double room = std::max(0.5, std::abs(low) / 10);
  return {low - room, low + room, false};
}

Axis Axis::of_values(double low, double high, bool may_be_log) {
  constexpr double kRoom = 0.05;
  // The ratio of two doubles, and what room is left around them, need not be a double.
  if (may_be_log && low > 0 && high / low > 1000 && std::isfinite(high / low)) {
    const double factor = std::pow(high / low, kRoom);
    if (low / factor > 0 && std::isfinite(high * factor)) return {low / factor, high * factor, true};
  }
  const auto tight = linear(low, high);
  const double room = kRoom * (tight.high_ - tight.low_);
  return linear(tight.low_ - room, tight.high_ + room);
}

double Axis::place(double value) const {
  if (is_log_) return std::log(value / low_) / std::log(high_ / low_);
  return (value - low_) / (high_ - low_);
}

std::vector<Tick> Axis::ticks(int wanted) const { return is_log_ ? log_ticks(wanted) : linear_ticks(wanted); }

std::vector<Tick> Axis::linear_ticks(int wanted) const {
  const double distance = round_distance((high_ - low_) / wanted);
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(distance))), 0, 12);
  const double largest = std::max(std::abs(low_), std::abs(high_));
  const int digits = std::clamp(static_cast<int>(std::ceil(std::log10(largest / distance))) + 1, 2, 15);
  const bool is_plain = largest < 1e4 && distance >= 1e-4;
  std::vector<Tick> ticks;
  for (double number = std::ceil(low_ / distance);
       number * distance <= high_ + 1e-9 * distance && ticks.size() < 100; ++number) {
    const double value = number * distance + 0.0;  // no -0
    ticks.push_back(
        {.place = place(value),
         .label = is_plain ? fmt::format("{:.{}f}", value, decimals) : short_number(value, digits)});
  }
  return ticks;
}

std::vector<Tick> Axis::log_ticks(int wanted) const {
  const double first = std::ceil(std::log10(low_)), last = std::floor(std::log10(high_));
  const double distance = std::max(1.0, std::ceil((last - first) / wanted));
  std::vector<Tick> ticks;
  for (double power = first; power <= last; power += distance) {
    const double value = std::pow(10, power);
    ticks.push_back({.place = place(value), .label = short_number(value)});
  }
  return ticks;
}

std::string short_number(double number, int digits) {
  constexpr std::pair<double, char> kUnits[] = {{1e9, 'G'}, {1e6, 'M'}, {1e4, 'k'}};
  const double size = std::abs(number);
  for (const auto& [unit, letter] : kUnits) {
    if (size < unit || size >= 1e13) continue;
    const double divisor = letter == 'k' ? 1e3 : unit;
    return fmt::format("{:.{}g}{}", number / divisor, digits, letter);
  }
  return fmt::format("{:.{}g}", number, digits);
}

}  // namespace lockstep::detail
