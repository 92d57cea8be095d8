// metrics.csv: one row per call, one column per metric, empty cells where a row has no value.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/loggers/logger.h>

namespace lockstep {

namespace detail {
class HparamsFile;
}

/// Writes FOLDER/metrics.csv with the columns `epoch,step,...`; the others are sorted by name;
/// and FOLDER/hparams.yaml with the hyper-parameters. The folder must exist.
/// A full disk never stops training: it is reported once, and the rows are written when there is room.
class LOCKSTEP_API CsvLogger final : public Logger {
 public:
  /// Rows are written in batches of `flush_every_n_rows`, or once a second, and forgotten; a new column has
  /// the file written anew. An older metrics.csv there is called metrics.1.csv, metrics.2.csv, ... when the
  /// first are.
  explicit CsvLogger(std::filesystem::path folder, int flush_every_n_rows = 100);
  ~CsvLogger() override;

  void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) override;
  void log_hyperparams(const HyperParameters& params) override;
  void flush() override;
  void finalize(const std::string& status) override;

  std::filesystem::path save_dir() const override { return file_.parent_path(); }
  std::filesystem::path log_dir() const override { return file_.parent_path(); }

 private:
  struct Row {
    std::string place;  // "epoch,step"
    std::vector<Metric> metrics;
  };

  using Columns = std::vector<std::string>;  // sorted

  void make_own_folder() const;
  void write_rows();
  void rewrite(const Columns& columns) const;
  Columns columns_with_pending() const;
  std::string pending_lines(const Columns& columns) const;

  std::filesystem::path file_;
  FlushSchedule schedule_;
  std::unique_ptr<detail::HparamsFile> hparams_;
  Columns columns_;           // of the file
  std::vector<Row> pending_;  // what is not in the file yet
  bool is_begun_ = false;     // the file is this logger's
};

}  // namespace lockstep
