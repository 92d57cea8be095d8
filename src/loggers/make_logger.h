// Creates loggers by name, and the one of DeepSpeed's csv_monitor. To add a logger, add its row in
// make_logger.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/loggers/logger.h>

#include "loggers/logger_files.h"

namespace lockstep::detail {

/// The folders to which the loggers of a run write.
struct LoggerPlace {
  std::filesystem::path run_dir;   ///< the folder of this run
  std::filesystem::path root_dir;  ///< what all runs have in common
  std::string run_name;
};

/// The names, in the order of the rows.
LOCKSTEP_API std::vector<std::string> named_loggers();

/// The logger of that name. @throws ConfigError when there is none
LOCKSTEP_API std::shared_ptr<Logger> make_logger(std::string_view name, const LoggerPlace& place);

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
