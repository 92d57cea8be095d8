#include "train/logging/make_loggers.h"

#include <lockstep/loggers/csv_logger.h>
#include <lockstep/loggers/jsonl_logger.h>
#include <lockstep/loggers/mlflow_logger.h>
#include <lockstep/loggers/tensorboard_logger.h>

namespace lockstep::detail {
namespace {

std::shared_ptr<Logger> make_logger(const std::string& name, const TrainerOptions& options,
                                    const std::filesystem::path& run_dir) {
  if (name == "jsonl") return std::make_shared<JsonlLogger>(run_dir);
  if (name == "mlflow") {
    return std::make_shared<MlflowLogger>(
        MlflowOptions{.save_dir = options.default_root_dir / "mlruns", .experiment_name = options.run.name});
  }
  if (name == "tensorboard") {
    // The run's folder is the version's; `tensorboard --logdir runs/NAME` compares them.
    return std::make_shared<TensorBoardLogger>(TensorBoardOptions{
        .save_dir = run_dir.parent_path(), .name = "", .version = run_dir.filename().string()});
  }
  return std::make_shared<CsvLogger>(run_dir);
}

}  // namespace

std::vector<std::shared_ptr<Logger>> make_loggers(const TrainerOptions& options,
                                                  const std::filesystem::path& run_dir) {
  std::vector<std::shared_ptr<Logger>> loggers;
  for (const auto& item : options.logger.items()) {
    const auto* name = std::get_if<std::string>(&item);
    loggers.push_back(name != nullptr ? make_logger(*name, options, run_dir)
                                      : std::get<std::shared_ptr<Logger>>(item));
  }
  return loggers;
}

void log_hyper_parameters(const RunSetup& setup, const RunLog& log) {
  const auto& parameters = setup.options.run.hyper_parameters;
  if (parameters.empty() || !setup.options.enable_autolog_hparams) return;
  for (const auto& logger : log.loggers) logger->log_hyperparams(parameters);
}

}  // namespace lockstep::detail
