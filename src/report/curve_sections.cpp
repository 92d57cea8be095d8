// The curves, in groups, and a table of their last values.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/export.h>

#include "report/curve.h"
#include "report/page.h"

namespace lockstep::detail {
namespace {

// The options of a chart.
struct ChartOptions {
  bool may_be_log = true;     ///< see Axis::of_values
  std::size_t buckets = 300;  ///< see reduced()
};

// In units of the drawing, which are a browser's pixels where it has its natural size.
constexpr double kWidth = 480, kHeight = 250;
constexpr double kLeft = 58, kRight = 14, kTop = 10, kBottom = 34;
constexpr std::size_t kDotsUpTo = 40;   // points are marked where they are few
constexpr std::size_t kSmoothFrom = 8;  // fewer are their own trend
constexpr std::size_t kSmoothBuckets = 60;

struct Series {
  std::size_t run = 0;
  std::vector<CurvePoint> points = {};  // reduced
  std::vector<CurvePoint> smooth = {};  // reduced; empty where points are few
  NotFinite missing = {};
};

/// How a chart's points are laid out; `x` chooses steps or epochs.
struct Frame {
  double CurvePoint::*x;
  Axis across;
  Axis up;

  double left(const CurvePoint& point) const { return left(across.place(point.*x)); }
  static double left(double place) { return kLeft + place * (kWidth - kLeft - kRight); }
  double top(const CurvePoint& point) const { return top(up.place(point.value)); }
  static double top(double place) { return kHeight - kBottom - place * (kHeight - kTop - kBottom); }
};

std::vector<Series> series_of(std::span<const ComparedRun> runs, const std::string& name,
                              std::size_t buckets) {
  std::vector<Series> all;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const auto* curve = find_curve(*runs[run].record, name);
    if (curve == nullptr) continue;
    const auto [points, missing] = line_of(*curve);
    Series series{.run = run, .points = reduced(points, buckets), .missing = missing};
    if (points.size() >= kSmoothFrom)
      series.smooth = reduced(smoothed(points), std::min(buckets, kSmoothBuckets));
    runs[run].epochs.apply(series.points);
    runs[run].epochs.apply(series.smooth);
    all.push_back(std::move(series));
  }
  return all;
}

std::pair<double, double> range_of(const std::vector<Series>& all, double CurvePoint::*member) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& series : all) {
    for (const auto& point : series.points) {
      low = std::min(low, point.*member);
      high = std::max(high, point.*member);
    }
  }
  return low <= high ? std::pair(low, high) : std::pair(0.0, 1.0);
}

std::string path_of(const std::vector<CurvePoint>& points, const Frame& frame) {
  std::string path;
  for (const auto& point : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', frame.left(point), frame.top(point));
  return path;
}

// Lines without length, which are drawn as dots.
std::string dots_of(const std::vector<CurvePoint>& points, const Frame& frame) {
  std::string path;
  for (const auto& point : points)
    path += fmt::format("M{:.1f} {:.1f}h0", frame.left(point), frame.top(point));
  return path;
}

void write_grid(HtmlWriter& page, const Frame& frame, std::string_view unit) {
  const auto number = [](double place) { return fmt::format("{:.1f}", place); };
  const auto left = number(kLeft), right = number(kWidth - kRight), floor = number(kHeight - kBottom);
  for (const auto& [place, label] : frame.up.ticks(5)) {
    const auto y = number(Frame::top(place));
    page.element("line", {{"class", "grid"}, {"x1", left}, {"x2", right}, {"y1", y}, {"y2", y}});
    page.element("text", {{"class", "up"}, {"x", number(kLeft - 7)}, {"y", number(Frame::top(place) + 3.5)}},
                 label);
  }
  for (const auto& [place, label] : frame.across.ticks(6)) {
    const auto x = number(Frame::left(place));
    page.element(
        "line",
        {{"class", "mark"}, {"x1", x}, {"x2", x}, {"y1", floor}, {"y2", number(kHeight - kBottom + 4)}});
    page.element("text", {{"class", "across"}, {"x", x}, {"y", number(kHeight - kBottom + 16)}}, label);
  }
  page.element("line", {{"class", "mark"}, {"x1", left}, {"x2", right}, {"y1", floor}, {"y2", floor}});
  page.element("text", {{"class", "unit"}, {"x", right}, {"y", number(kHeight - 4)}}, unit);
}

void write_lines(HtmlWriter& page, const Series& series, const Frame& frame) {
  const auto colour = "run " + run_classes(series.run);
  const auto group = page.within("g", {{"class", colour}});
  const auto* raw = series.smooth.empty() ? "raw alone" : "raw";
  page.element("path", {{"class", raw}, {"d", path_of(series.points, frame)}});
  if (series.points.size() <= kDotsUpTo)
    page.element("path", {{"class", "dots"}, {"d", dots_of(series.points, frame)}});
  if (!series.smooth.empty())
    page.element("path", {{"class", "smooth"}, {"d", path_of(series.smooth, frame)}});
}

// The script finds places from the ranges that the axes show.
void write_drawing(HtmlWriter& page, const std::vector<Series>& all, const Frame& frame,
                   std::string_view unit) {
  const auto range = [](const Axis& axis) { return fmt::format("{} {}", axis.low(), axis.high()); };
  const auto svg = page.within(
      "svg", {{"class", fmt::format("by-{}", unit)},
              {"viewBox", fmt::format("0 0 {} {}", kWidth, kHeight)},
              {"data-box", fmt::format("{} {} {} {}", kLeft, kTop, kWidth - kRight, kHeight - kBottom)},
              {"data-axis", unit},
              {"data-across", range(frame.across)},
              {"data-up", range(frame.up)},
              {"data-log", frame.up.is_log() ? "1" : ""},
              {"role", "img"}});
  write_grid(page, frame, unit);
  for (const auto& series : all) write_lines(page, series, frame);
}

// JSON that stands in HTML: no "<" that could end the element.
void write_points(HtmlWriter& page, const std::string& name, const std::vector<Series>& all) {
  auto chart = nlohmann::ordered_json{{"name", name}, {"series", nlohmann::ordered_json::array()}};
  for (const auto& series : all) {
    auto steps = nlohmann::ordered_json::array(), epochs = steps, values = steps;
    for (const auto& point : series.points) {
      steps.push_back(static_cast<std::int64_t>(point.step));
      epochs.push_back(nlohmann::ordered_json::parse(fmt::format("{:.6g}", point.epoch)));
      values.push_back(point.value);
    }
    chart["series"].push_back({{"run", series.run}, {"step", steps}, {"epoch", epochs}, {"value", values}});
  }
  std::string text;
  for (const char letter : chart.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace))
    text += letter == '<' ? std::string("\\u003c") : std::string(1, letter);
  const auto script = page.within("script", {{"type", "application/json"}, {"class", "points"}});
  page.verbatim(text);
}

void write_missing(HtmlWriter& page, const Series& series) {
  if (series.missing.count == 0) return;
  const auto note = page.within("p", {{"class", "warning run " + run_classes(series.run)}});
  page.element("span", {{"class", "swatch"}});
  page.text(fmt::format("{} value{} no finite number, first at step {}", series.missing.count,
                        series.missing.count == 1 ? " is" : "s are", series.missing.first_step));
}

// Appends a figure to `page`: the curve called `name` of each of `runs` that has it, over steps and over
// epochs, as it is and smoothed; the page's style and controls say which of them is seen. The points stand
// beside it as JSON for the script that shows values: {"name", "series": [{"run", "step", "epoch",
// "value"}]}. Run i is drawn in colour i.
void write_chart(HtmlWriter& page, std::span<const ComparedRun> runs, const std::string& name,
                 const ChartOptions& options) {
  const auto all = series_of(runs, name, options.buckets);
  const auto [low, high] = range_of(all, &CurvePoint::value);
  const auto up = Axis::of_values(low, high, options.may_be_log);
  const auto figure = page.within("figure", {{"class", "card chart"}});
  {
    const auto caption = page.within("figcaption");
    page.text(name);
    if (up.is_log()) page.element("span", {{"class", "hint"}}, "log scale");
  }
  const auto across = [&](double CurvePoint::*member) {
    const auto [first, last] = range_of(all, member);
    return Frame{.x = member, .across = Axis::linear(first, last), .up = up};
  };
  write_drawing(page, all, across(&CurvePoint::step), "step");
  write_drawing(page, all, across(&CurvePoint::epoch), "epoch");
  write_points(page, name, all);
  for (const auto& series : all) write_missing(page, series);
}

constexpr std::size_t kPointsOfPage = 12'000;  // of all lines; about 1 MB
constexpr std::size_t kMostCharts = 150;
constexpr std::size_t kMostLines = 600;
constexpr std::size_t kMostMetricRows = 300;

bool is_learning_rate(const std::string& name) {
  return name.starts_with("lr-") || name.starts_with("lr_") || name == "lr" || name == "learning_rate";
}

bool is_throughput(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  return has("per_sec") || has("/sec") || has("throughput") || has("flops");
}

template <class Wanted>
std::vector<std::string> chosen(std::span<const std::string> names, Wanted wanted) {
  std::vector<std::string> some;
  std::ranges::copy_if(names, std::back_inserter(some), wanted);
  return some;
}

// Limits the points of a page, and those of a drawing to its pixels.
std::size_t buckets_for(std::size_t charts, std::size_t runs) {
  constexpr std::size_t kLeast = 8, kPixels = 400;
  return std::clamp(kPointsOfPage / (2 * std::max<std::size_t>(1, charts * runs)), kLeast, kPixels);
}

void write_group(HtmlWriter& page, ComparedRuns runs, const std::string& title,
                 std::span<const std::string> names, const ChartOptions& options) {
  page.element("h2", {}, title);
  const auto grid = page.within("div", {{"class", "charts"}});
  for (const auto& name : names) write_chart(page, runs, name, options);
}

Cell last_value(const ComparedRun& run, std::size_t index, const std::string& name) {
  const auto* curve = find_curve(*run.record, name);
  const auto classes = "run " + run_classes(index);
  if (curve == nullptr) return {.text = "\u2013", .classes = classes};
  return {.text = fmt::format("{:.6g}", curve->points.back().value), .classes = classes};
}

void write_last_values(HtmlWriter& page, ComparedRuns runs, std::span<const std::string> names) {
  const auto details = page.within("details", {{"class", "card"}});
  page.element("summary", {}, "Last values");
  std::vector<Cell> header{{"Metric"}};
  for (std::size_t index = 0; index < runs.size(); ++index)
    header.push_back({.text = runs[index].name, .classes = "run " + run_classes(index), .run = index});
  std::vector<Row> rows;
  for (const auto& name : names.first(std::min(names.size(), kMostMetricRows))) {
    Row row{.cells = {{.text = name}}};
    for (std::size_t index = 0; index < runs.size(); ++index)
      row.cells.push_back(last_value(runs[index], index, name));
    rows.push_back(std::move(row));
  }
  write_table(page, header, rows);
}

Row rate_row(ComparedRuns runs, std::size_t index, double largest) {
  const double rate = *runs[index]->summary->samples_per_second;
  return {.cells = {{.text = runs[index].name, .run = index},
                    {.text = short_number(rate, 5), .bar = largest > 0 ? rate / largest : 0}},
          .classes = "run " + run_classes(index)};
}

void write_rates(HtmlWriter& page, ComparedRuns runs) {
  const auto has_rate = [](const ComparedRun& run) {
    return run->summary && run->summary->samples_per_second;
  };
  double largest = 0;
  for (const auto& run : runs)
    largest = has_rate(run) ? std::max(largest, *run->summary->samples_per_second) : largest;
  std::vector<Row> rows;
  for (std::size_t index = 0; index < runs.size(); ++index) {
    if (has_rate(runs[index])) rows.push_back(rate_row(runs, index, largest));
  }
  if (rows.empty()) return write_note(page, "No run has a summary.json that says how fast it was.");
  const auto card = page.within("div", {{"class", "card"}});
  write_table(page, {{"Run"}, {"Samples per second, of all ranks, over the whole run"}}, rows);
}

}  // namespace

void write_curves(HtmlWriter& page, ComparedRuns runs, std::span<const std::string> names) {
  const auto section = page.within("section", {{"id", "curves"}});
  const auto most = std::clamp<std::size_t>(kMostLines / runs.size(), 1, kMostCharts);
  const auto shown = names.first(std::min(names.size(), most));
  const ChartOptions options{.buckets = buckets_for(shown.size(), runs.size())};
  const auto rates = chosen(shown, is_learning_rate);
  const auto throughput = chosen(shown, is_throughput);
  const auto metrics =
      chosen(shown, [](const auto& name) { return !is_learning_rate(name) && !is_throughput(name); });
  write_group(page, runs, "Metrics", metrics, options);
  if (names.empty()) write_note(page, "No metrics.csv: nothing was logged in these runs.");
  if (shown.size() < names.size()) {
    write_note(page,
               fmt::format("{} more metrics are not drawn: choose them with --metric, such as --metric {}",
                           names.size() - shown.size(), names[shown.size()]));
  }
  if (!names.empty()) write_last_values(page, runs, names);
  if (!rates.empty())
    write_group(page, runs, "Learning rate", rates, {.may_be_log = false, .buckets = options.buckets});
  write_group(page, runs, "Throughput", throughput, options);
  write_rates(page, runs);
}

}  // namespace lockstep::detail
