// Writes what loggers_test.py reads with the packages of other people.
//
//   logger_case tensorboard FOLDER     two runs of an experiment, a failed one and one with a sub-folder
//   logger_case killed FOLDER          a run that is killed by SIGKILL after row 9 was flushed
//   logger_case jsonl FOLDER           metrics.jsonl and hparams.yaml
//   logger_case hostile FOLDER         by every logger the metrics and hyper-parameters in FOLDER.rows: lines
//   of a
//                                      name in hexadecimal digits and a value
//   logger_case mlflow FOLDER          two runs of an experiment, of which one failed, and one that goes on
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/loggers/loggers.h>

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

std::vector<ls::Metric> read_rows(const std::string& file) {
  std::vector<ls::Metric> rows;
  std::ifstream text(file);
  for (std::string line; std::getline(text, line);) {
    const auto space = line.find(' ');
    std::string name;
    for (std::size_t i = 0; i < space; i += 2)
      name += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    rows.emplace_back(name, std::strtod(line.c_str() + space, nullptr));
  }
  return rows;
}

// Each metric in a step of its own, and then all at once; hyper-parameters have their names for values.
void hostile(const std::string& folder) {
  const auto rows = read_rows(folder + ".rows");
  ls::HyperParameters params;
  for (const auto& [name, value] : rows) params.emplace_back(name, name);
  std::filesystem::create_directories(folder + "/csv");  // which is the run's, and there
  std::vector<std::unique_ptr<ls::Logger>> loggers;
  loggers.push_back(std::make_unique<ls::CsvLogger>(folder + "/csv", 1));
  loggers.push_back(std::make_unique<ls::JsonlLogger>(folder + "/jsonl"));
  loggers.push_back(std::make_unique<ls::TensorBoardLogger>(
      ls::TensorBoardOptions{.save_dir = folder, .name = "", .version = "tensorboard"}));
  loggers.push_back(std::make_unique<ls::MlflowLogger>(ls::MlflowOptions{.save_dir = folder + "/mlflow"}));
  for (auto& logger : loggers) {
    logger->log_hyperparams(params);
    for (std::size_t i = 0; i < rows.size(); ++i)
      logger->log_metrics(std::span(&rows[i], 1), 0, static_cast<std::int64_t>(i));
    logger->log_metrics(rows, 1, 1000);
    logger->finalize("success");
  }
}

void run(std::string_view kind, const std::string& folder) {
  if (kind == "tensorboard") tensorboard(folder);
  if (kind == "killed") killed(folder);
  if (kind == "jsonl") jsonl(folder);
  if (kind == "mlflow") mlflow(folder);
  if (kind == "hostile") hostile(folder);
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
