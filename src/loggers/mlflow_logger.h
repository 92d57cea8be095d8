// MLflow's file store: experiments and runs as folders with a meta.yaml.
// mlflow/store/tracking/file_store.py
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/loggers/loggers.h>

namespace lockstep::detail {

/// How far a run is; the numbers are MLflow's.
enum class MlflowStatus { kRunning = 1, kFinished = 3, kFailed = 4 };

/// One run: what its meta.yaml says.
struct MlflowRun {
  std::filesystem::path folder;
  std::string experiment_id;
  std::string run_id;
  std::string run_name;
  std::int64_t start_time_ms = 0;  ///< since 1970
};

/// The id of the experiment `name` in `store`; makes experiment and store where there are none. Processes
/// that do so at the same time get the same id. Blocking.
/// @throws IoError when they cannot be made
LOCKSTEP_API std::string mlflow_experiment(const std::filesystem::path& store, const std::string& name);

/// Makes the run that `options` ask for, or finds it, and marks it as running. Blocking.
/// @throws IoError when it cannot be made; ConfigError when there is no run `options.run_id`
LOCKSTEP_API MlflowRun open_mlflow_run(const MlflowOptions& options);

/// Writes the run's meta.yaml. Blocking.
/// @throws IoError when it cannot be written
LOCKSTEP_API void write_mlflow_status(const MlflowRun& run, MlflowStatus status,
                                      std::optional<std::int64_t> end_time_ms = {});

/// `name` as that of a metric, parameter or tag: only what MLflow reads, and no way out of the folder.
LOCKSTEP_API std::string mlflow_key(const std::string& name);

/// Milliseconds since 1970.
LOCKSTEP_API std::int64_t mlflow_time();

}  // namespace lockstep::detail
