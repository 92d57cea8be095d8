// The profilers that report tables: simple and advanced.
#include <algorithm>
#include <functional>
#include <utility>

#include <lockstep/profilers/advanced_profiler.h>
#include <lockstep/profilers/simple_profiler.h>

#include "profilers/call_stats.h"
#include "profilers/report_table.h"

namespace lockstep {

SimpleProfiler::SimpleProfiler(SimpleProfilerOptions options)
    : Profiler({.dirpath = std::move(options.dirpath), .filename = std::move(options.filename)}),
      extended_(options.extended),
      calls_(std::make_unique<detail::CallStore<detail::CallTotal>>()) {}

SimpleProfiler::~SimpleProfiler() = default;

void SimpleProfiler::record(Action action, Clock::time_point begin, Clock::time_point end) noexcept {
  calls_->add(action, end - begin);
}

std::string SimpleProfiler::summary() const {
  const double run_s = std::chrono::duration<double>(Clock::now() - start_).count();
  std::vector<detail::SimpleRow> rows;
  for (const auto& [action, total] : calls_->rows()) {
    rows.push_back({action.name(), total->calls(), total->total_s()});
  }
  return detail::simple_report(heading(), std::move(rows), run_s, extended_);
}

namespace {

using Store = detail::CallStore<detail::DurationHistogram>;

double total_s(const Store::Row& row) { return row.stats->total().total_s(); }

detail::ReportRow line(const Store::Row& row) {
  using detail::report_number;
  const auto& stats = *row.stats;
  return {row.action.name(),
          std::to_string(stats.calls()),
          report_number(total_s(row)),
          report_number(stats.total().mean_s()),
          report_number(stats.min_s()),
          report_number(stats.quantile_s(0.50)),
          report_number(stats.quantile_s(0.90)),
          report_number(stats.quantile_s(0.99)),
          report_number(stats.max_s())};
}

}  // namespace

AdvancedProfiler::AdvancedProfiler(ProfilerFile file)
    : Profiler(std::move(file)), calls_(std::make_unique<Store>()) {}

AdvancedProfiler::~AdvancedProfiler() = default;

void AdvancedProfiler::record(Action action, Clock::time_point begin, Clock::time_point end) noexcept {
  calls_->add(action, end - begin);
}

std::string AdvancedProfiler::summary() const {
  auto rows = calls_->rows();
  if (rows.empty()) return heading() + "\n\n";
  std::ranges::stable_sort(rows, std::greater(), total_s);
  std::vector<detail::ReportRow> lines;
  for (const auto& row : rows) lines.push_back(line(row));
  return heading() + "\n" +
         detail::report_table({"Action", "Num calls", "Total time (s)", "Mean (s)", "Min (s)", "p50 (s)",
                               "p90 (s)", "p99 (s)", "Max (s)"},
                              lines);
}

}  // namespace lockstep
