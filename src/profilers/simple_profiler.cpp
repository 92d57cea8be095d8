#include <lockstep/profilers/simple_profiler.h>

#include <utility>

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

}  // namespace lockstep
