// Event files for TensorBoard, in Lightning's folders.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <lockstep/base/option_visitor.h>
#include <lockstep/loggers/logger.h>

namespace lockstep {

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

}  // namespace lockstep
