// The curves, in groups, and a table of their last values.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "report/axis.h"
#include "report/chart.h"
#include "report/sections.h"
#include "report/widgets.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kPointsOfPage = 12'000;  // of all lines; about 1 MB
constexpr std::size_t kMostCharts = 150;
constexpr std::size_t kMostLines = 600;
constexpr std::size_t kMostRows = 300;

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

// A page has room for so many points; a drawing has no use for more than it has pixels.
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
  for (const auto& name : names.first(std::min(names.size(), kMostRows))) {
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
