// Writes what loggers_test.py reads with the packages of other people.
//
//   logger_case tensorboard FOLDER     two runs of an experiment, a failed one and one with a sub-folder
//   logger_case killed FOLDER          a run that is killed by SIGKILL after row 9 was flushed
//   logger_case jsonl FOLDER           metrics.jsonl and hparams.yaml
//   logger_case mlflow FOLDER          two runs of an experiment, of which one failed, and one that goes on
#include <signal.h>

#include <iostream>
#include <limits>
#include <string_view>
#include <vector>

#include <lockstep/loggers/jsonl_logger.h>
#include <lockstep/loggers/mlflow_logger.h>
#include <lockstep/loggers/tensorboard_logger.h>

namespace ls = lockstep;

namespace {

const ls::HyperParameters kParams{{"optimizer/lr", 1e-5},
                                  {"optimizer/name", "adamw"},
                                  {"layers", 3},
                                  {"width", 64.0},
                                  {"amp", true},
                                  {"note", "yes: \"h\u00e9\"\n"},
                                  {"clip", std::numeric_limits<double>::infinity()}};

void log_steps(ls::Logger& logger, int steps) {
  for (int step = 0; step < steps; ++step) {
    const std::vector<ls::Metric> row{{"train/loss", 1.0 / (1 + step)}, {"lr", 0.5}};
    logger.log_metrics(row, step / 2, step);
  }
}

void tensorboard(const std::string& folder) {
  ls::TensorBoardLogger first({.save_dir = folder});
  first.log_hyperparams(kParams);
  log_steps(first, 5);
  first.finalize("success");

  ls::TensorBoardLogger second({.save_dir = folder, .prefix = "big"});
  const std::vector<ls::Metric> columns{{"best", 0.25}};
  second.log_hyperparams({{"layers", 7}}, columns);
  log_steps(second, 3);
  second.finalize("failed");

  ls::TensorBoardLogger third({.save_dir = folder, .name = "", .version = "mine", .sub_dir = "inner"});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  third.log_metrics(std::vector<ls::Metric>{{"h\u00e9 \u4e16", nan}, {"bad \xff", 2}}, 0, 1L << 40);
  third.finalize("success");
}

void killed(const std::string& folder) {
  ls::TensorBoardLogger logger({.save_dir = folder});
  log_steps(logger, 10);
  logger.flush();
  ::raise(SIGKILL);
}

void jsonl(const std::string& folder) {
  ls::JsonlLogger logger(folder);
  logger.log_hyperparams(kParams);
  log_steps(logger, 3);
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  logger.log_metrics(std::vector<ls::Metric>{{"a \"b\"", nan}, {"up", infinity}, {"down", -infinity}}, 1, 3);
  logger.finalize("success");
}

void mlflow(const std::string& folder) {
  const std::string experiment = "h\u00e9: \"x\"";
  ls::MlflowLogger first(
      {.save_dir = folder, .experiment_name = experiment, .run_name = "first", .tags = {{"team", "vision"}}});
  first.log_hyperparams(kParams);
  log_steps(first, 5);
  first.finalize("success");

  ls::MlflowLogger second({.save_dir = folder, .experiment_name = experiment, .prefix = "big"});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  second.log_metrics(std::vector<ls::Metric>{{"../out@side", 2}, {"nan", nan}}, 0, 0);
  second.finalize("failed");

  ls::MlflowLogger third({.save_dir = folder, .experiment_name = experiment, .run_id = first.version()});
  third.log_metrics(std::vector<ls::Metric>{{"train/loss", 1e-20}}, 9, 9);
  third.flush();
}

void run(std::string_view kind, const std::string& folder) {
  if (kind == "tensorboard") tensorboard(folder);
  if (kind == "killed") killed(folder);
  if (kind == "jsonl") jsonl(folder);
  if (kind == "mlflow") mlflow(folder);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  run(argv[1], argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
