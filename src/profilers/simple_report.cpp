#include "profilers/simple_report.h"

#include <algorithm>
#include <functional>

#include "profilers/report_table.h"

namespace lockstep::detail {
namespace {

double mean_s(const SimpleRow& row) { return row.total_s / static_cast<double>(row.calls); }

std::string long_table(std::vector<SimpleRow>& rows, double run_s) {
  std::ranges::stable_sort(rows, std::greater(), &SimpleRow::total_s);
  std::uint64_t calls = 0;
  std::vector<ReportRow> lines;
  for (const auto& row : rows) {
    calls += row.calls;
    lines.push_back({row.action, report_number(mean_s(row)), std::to_string(row.calls),
                     report_number(row.total_s), report_number(100 * row.total_s / run_s)});
  }
  return report_table({"Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %"}, lines,
                      {"Total", "-", std::to_string(calls), report_number(run_s), "100 %"});
}

std::string short_table(std::vector<SimpleRow>& rows) {
  std::ranges::stable_sort(rows, std::greater(), mean_s);
  std::vector<ReportRow> lines;
  for (const auto& row : rows) {
    lines.push_back({row.action, report_number(mean_s(row)), report_number(row.total_s)});
  }
  return report_table({"Action", "Mean duration (s)", "Total time (s)"}, lines);
}

}  // namespace

std::string simple_report(const std::string& heading, std::vector<SimpleRow> rows, double run_s,
                          bool extended) {
  const auto text = heading + "\n";
  if (rows.empty()) return text + "\n";
  return text + (extended ? long_table(rows, run_s) : short_table(rows));
}

}  // namespace lockstep::detail
