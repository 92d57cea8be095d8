#include "loggers/csv_monitor.h"

#include <algorithm>

#include "base/format.h"
#include "loggers/logger_files.h"

namespace lockstep::detail {

void CsvMonitor::log_metrics(std::span<const Metric> metrics, std::int64_t /*epoch*/, std::int64_t step) {
  for (const auto& [name, value] : metrics)
    file_of(name).append(std::to_string(step) + "," + number_text(value) + "\n");
  if (schedule_.add_row()) flush();
}

AppendFile& CsvMonitor::file_of(const std::string& metric) {
  const auto known = files_.find(metric);
  if (known != files_.end()) return known->second;
  auto name = metric;
  std::ranges::replace(name, '/', '_');
  std::ranges::replace(name, ' ', '_');
  const auto path = folder_ / (name + ".csv");
  std::error_code none;
  const bool is_new = std::filesystem::file_size(path, none) == 0 || none;
  auto& file = files_.emplace(metric, AppendFile(path, AppendFile::Existing::kContinued)).first->second;
  if (is_new) file.append("step," + metric.substr(metric.rfind('/') + 1) + "\n");
  return file;
}

void CsvMonitor::flush() {
  for (auto& [name, file] : files_) write_or_warn(folder_, [&file] { file.flush(); });
  schedule_.flushed();
}

void CsvMonitor::finalize(const std::string& /*status*/) { flush(); }

}  // namespace lockstep::detail
