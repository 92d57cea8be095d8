// Runs in MLflow's file store, which `mlflow ui --backend-store-uri FOLDER` shows.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/loggers/logger.h>

namespace lockstep {

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
