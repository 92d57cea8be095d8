// metrics.csv: one row per call, one column per metric, empty cells where a row has no value.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/loggers/logger.h>

namespace lockstep {

/// Writes FOLDER/metrics.csv with the columns `epoch,step,...`; the others are sorted by name.
/// A full disk never stops training: it is reported once, and the rows are written when there is room.
class LOCKSTEP_API CsvLogger final : public Logger {
 public:
  /// Rows are written in batches of `flush_every_n_rows`, or once a second. An older metrics.csv there
  /// is replaced.
  explicit CsvLogger(std::filesystem::path folder, int flush_every_n_rows = 100);

  void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) override;
  void flush() override;
  void finalize(const std::string& status) override;

 private:
  struct Row {
    std::int64_t epoch;
    std::int64_t step;
    std::vector<Metric> metrics;
  };

  void append(const std::string& text) const;
  bool add_columns(std::span<const Row> rows);
  std::string header() const;
  std::string line(const Row& row) const;

  std::filesystem::path file_;
  int flush_every_n_rows_;
  std::vector<std::string> columns_;  // sorted
  std::vector<Row> pending_;
  std::vector<Row> rows_;  // kept: a new column goes into all of them
  std::chrono::steady_clock::time_point last_flush_ = {};
  bool created_ = false;  // the file holds rows_ under columns_
};

}  // namespace lockstep
