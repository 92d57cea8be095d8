#include "train/make_loggers.h"

#include "loggers/make_logger.h"

namespace lockstep::detail {
std::vector<std::shared_ptr<Logger>> make_loggers(const TrainerOptions& options,
                                                  const std::filesystem::path& run_dir) {
  const LoggerPlace place{
      .run_dir = run_dir, .root_dir = options.default_root_dir, .run_name = options.run.name};
  std::vector<std::shared_ptr<Logger>> loggers;
  for (const auto& item : options.logger.items()) {
    const auto* name = std::get_if<std::string>(&item);
    loggers.push_back(name != nullptr ? make_logger(*name, place) : std::get<std::shared_ptr<Logger>>(item));
  }
  return loggers;
}

void log_hyper_parameters(const RunState& state) {
  const auto& parameters = state.options.run.hyper_parameters;
  if (parameters.empty() || !state.options.enable_autolog_hparams) return;
  for (const auto& logger : state.loggers) logger->log_hyperparams(parameters);
}

}  // namespace lockstep::detail
