// The profilers that print tables, and the choice of a profiler by its name.
#include <lockstep/profilers/profilers.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "profilers/call_records.h"
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

namespace {

struct Maker {
  const char* name;
  std::unique_ptr<Profiler> (*make)(ProfilerFile file);
};

std::unique_ptr<Profiler> make_simple(ProfilerFile file) {
  return std::make_unique<SimpleProfiler>(
      SimpleProfilerOptions{.dirpath = std::move(file.dirpath), .filename = std::move(file.filename)});
}

std::unique_ptr<Profiler> make_advanced(ProfilerFile file) {
  return std::make_unique<AdvancedProfiler>(std::move(file));
}

std::unique_ptr<Profiler> make_trace(ProfilerFile file) {
  TraceProfilerOptions options{.dirpath = std::move(file.dirpath)};
  if (!file.filename.empty()) options.filename = std::move(file.filename);
  return std::make_unique<TraceProfiler>(std::move(options));
}

constexpr Maker kMakers[] = {{"simple", make_simple}, {"advanced", make_advanced}, {"trace", make_trace}};

std::string hint_for(std::string_view name) {
  if (name == "pytorch" || name == "xla") return "`trace` writes a time line";
  return did_you_mean(nearest_name(name, profiler_names()));
}

}  // namespace

std::span<const std::string> profiler_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const auto& maker : kMakers) made.emplace_back(maker.name);
    return made;
  }();
  return names;
}

std::unique_ptr<Profiler> make_profiler(std::string_view name, ProfilerFile file) {
  for (const auto& maker : kMakers) {
    if (name == maker.name) return maker.make(std::move(file));
  }
  throw ConfigError("profilers", {.what = "When passing string value for the `profiler` parameter of "
                                          "`Trainer`, it can only be one of ['" +
                                          joined(profiler_names(), "', '") + "']",
                                  .got = '"' + std::string(name) + '"',
                                  .hint = hint_for(name)});
}

}  // namespace lockstep
