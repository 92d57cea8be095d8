#include "loggers/make_logger.h"

#include <lockstep/base/error.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/loggers/loggers.h>

#include "base/format.h"

namespace lockstep::detail {
namespace {

using Made = std::shared_ptr<Logger>;

Made make_csv(const LoggerPlace& place) { return std::make_shared<CsvLogger>(place.run_dir); }

Made make_jsonl(const LoggerPlace& place) { return std::make_shared<JsonlLogger>(place.run_dir); }

Made make_mlflow(const LoggerPlace& place) {
  return std::make_shared<MlflowLogger>(
      MlflowOptions{.save_dir = place.root_dir / "mlruns", .experiment_name = place.run_name});
}

// The run's folder is the version's; `tensorboard --logdir runs/NAME` compares them.
Made make_tensorboard(const LoggerPlace& place) {
  return std::make_shared<TensorBoardLogger>(TensorBoardOptions{
      .save_dir = place.run_dir.parent_path(), .name = "", .version = place.run_dir.filename().string()});
}

struct Row {
  const char* name;
  Made (*make)(const LoggerPlace& place);
};

constexpr Row kRows[] = {
    {"csv", make_csv}, {"jsonl", make_jsonl}, {"mlflow", make_mlflow}, {"tensorboard", make_tensorboard}};

}  // namespace

std::vector<std::string> named_loggers() {
  std::vector<std::string> names;
  for (const auto& row : kRows) names.emplace_back(row.name);
  return names;
}

std::shared_ptr<Logger> make_logger(std::string_view name, const LoggerPlace& place) {
  for (const auto& row : kRows) {
    if (name == row.name) return row.make(place);
  }
  throw ConfigError("loggers", {.what = "logger",
                                .expected = "one of " + lockstep::joined(named_loggers()),
                                .got = "\"" + std::string(name) + "\""});
}

}  // namespace lockstep::detail

namespace lockstep {

Logger::~Logger() = default;

void Logger::log_hyperparams(const HyperParameters&) {}

}  // namespace lockstep
