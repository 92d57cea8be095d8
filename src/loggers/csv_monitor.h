// DeepSpeed's csv_monitor: a file for each metric.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/loggers/logger.h>

#include "loggers/logger_files.h"

namespace lockstep::detail {

/// Writes FOLDER/Train_Samples_lr.csv for the metric "Train/Samples/lr", with the columns `step,lr`. Files
/// that are there already are continued; DeepSpeed writes another header into them. A full disk never stops
/// training.
class LOCKSTEP_API CsvMonitor final : public Logger {
 public:
  explicit CsvMonitor(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) override;
  void flush() override;
  void finalize(const std::string& status) override;
  std::filesystem::path log_dir() const override { return folder_; }

 private:
  AppendFile& file_of(const std::string& metric);

  std::filesystem::path folder_;
  std::map<std::string, AppendFile> files_;  // by metric
  FlushSchedule schedule_{100};
};

}  // namespace lockstep::detail
