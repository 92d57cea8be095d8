// The loggers that the library has: metrics.csv, metrics.jsonl, and the files of TensorBoard and MLflow.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/option_visitor.h>
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

/// Writes FOLDER/metrics.jsonl with lines as `{"epoch":0,"step":9,"loss":0.5}`, and FOLDER/hparams.yaml. A
/// metric named `epoch` or `step` takes the place of that number. JSON has no number for what is not finite:
/// it is written as the text "NaN", "Infinity" or "-Infinity", as Protocol Buffers do. What was flushed is
/// seen by readers, also when the process is killed.
class LOCKSTEP_API JsonlLogger final : public Logger {
 public:
  /// Rows are written in batches of `flush_every_n_rows`, or once a second. An older metrics.jsonl there is
  /// called metrics.1.jsonl, metrics.2.jsonl, ... when the first are.
  explicit JsonlLogger(std::filesystem::path folder, int flush_every_n_rows = 100);
  ~JsonlLogger() override;

  void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) override;
  void log_hyperparams(const HyperParameters& params) override;
  void flush() override;
  void finalize(const std::string& status) override;

  std::filesystem::path save_dir() const override;
  std::filesystem::path log_dir() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The folder of a run is save_dir/name/version_N/sub_dir.
struct TensorBoardOptions {
  std::filesystem::path save_dir = ".";  ///< what `tensorboard --logdir` is given
  std::string name = "lightning_logs";   ///< of the experiment; empty: no folder for it
  std::string version = {};              ///< a number, or a folder's name; empty: the next number
  std::filesystem::path sub_dir = {};    ///< of this run's folder
  std::string prefix = {};               ///< before every metric's name, with a dash
  bool default_hp_metric = true;  ///< log hp_metric = -1 with hyper-parameters that come without metrics
  int flush_every_n_rows = 100;   ///< rows are written in such batches, or once a second
};

LOCKSTEP_API void describe(OptionVisitor& visitor, TensorBoardOptions& options);

/// Writes `events.out.tfevents.TIME.HOST.PID.N`, and hparams.yaml. Every run appends to a file of its own;
/// TensorBoard shows those of one folder as one run. A row has its metrics and `epoch`. What was flushed is
/// seen by readers, also when the process is killed.
class LOCKSTEP_API TensorBoardLogger final : public Logger {
 public:
  explicit TensorBoardLogger(TensorBoardOptions options);
  ~TensorBoardLogger() override;

  void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) override;

  /// Adds the run to the table of hyper-parameters, with the column hp_metric when default_hp_metric is
  /// set, and writes hparams.yaml. TensorBoard shows what the first call of a run gives.
  void log_hyperparams(const HyperParameters& params) override;
  /// As above, with columns for `metrics`, whose present values are logged at step 0.
  void log_hyperparams(const HyperParameters& params, std::span<const Metric> metrics);

  void flush() override;
  void finalize(const std::string& status) override;

  std::string name() const override;
  std::string version() const override;
  std::filesystem::path save_dir() const override;
  std::filesystem::path log_dir() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Names are those of Lightning's MLFlowLogger.
struct MlflowOptions {
  std::filesystem::path save_dir = "mlruns";       ///< the store
  std::string experiment_name = "lightning_logs";  ///< found in the store, or made
  std::string run_name = {};                       ///< empty: from the run's id
  std::string run_id = {};                         ///< of a run to go on with; empty: a new one
  std::string prefix = {};                         ///< before every metric's name, with a dash
  int flush_every_n_rows = 100;                    ///< rows are written in such batches, or once a second
  std::vector<std::pair<std::string, std::string>> tags = {};  ///< names with values; not a flag
};

LOCKSTEP_API void describe(OptionVisitor& visitor, MlflowOptions& options);

/// Writes SAVE_DIR/EXPERIMENT_ID/RUN_ID/{meta.yaml,metrics,params,tags}. A row has its metrics and `epoch`.
/// Names of metrics and hyper-parameters keep letters, digits and `_/. -`, which are what MLflow reads.
class LOCKSTEP_API MlflowLogger final : public Logger {
 public:
  explicit MlflowLogger(MlflowOptions options);
  ~MlflowLogger() override;

  void log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) override;
  void log_hyperparams(const HyperParameters& params) override;
  void flush() override;
  /// Marks the run as FINISHED or FAILED. A run that was killed stays RUNNING.
  void finalize(const std::string& status) override;

  /// The experiment's id and the run's. @throws IoError when they cannot be made
  std::string name() const override;
  std::string version() const override;
  std::filesystem::path save_dir() const override;
  std::filesystem::path log_dir() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
