#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/loggers/loggers.h>

#include <lockstep/base/error.h>

#include "loggers/mlflow_logger.h"
#include "support/expect_error.h"
#include "support/forked.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

void log_one(Logger& logger, const std::string& name, double value, std::int64_t step) {
  logger.log_metrics(std::vector<Metric>{{name, value}}, 0, step);
}

TEST(MlflowLogger, WritesMetricsParametersAndTags) {
  const TemporaryFolder folder;
  MlflowLogger logger({.save_dir = folder / "mlruns", .run_name = "mine", .tags = {{"team", "vision"}}});
  logger.log_hyperparams({{"optimizer/lr", 1.0}, {"amp", true}});
  log_one(logger, "val/loss", 0.5, 3);
  log_one(logger, "val/loss", 1e-20, 4);
  logger.finalize("success");
  const auto run = folder / "mlruns" / logger.name() / logger.version();
  EXPECT_EQ(logger.log_dir(), run);
  EXPECT_THAT(content(run / "metrics" / "val" / "loss"), MatchesRegex("[0-9]+ 0.5 3\n[0-9]+ 1e-20 4\n"));
  EXPECT_THAT(content(run / "metrics" / "epoch"), MatchesRegex("[0-9]+ 0.0 3\n[0-9]+ 0.0 4\n"));
  EXPECT_EQ(content(run / "params" / "optimizer" / "lr"), "1.0");
  EXPECT_EQ(content(run / "params" / "amp"), "True");
  EXPECT_EQ(content(run / "tags" / "team"), "vision");
  EXPECT_EQ(content(run / "tags" / "mlflow.runName"), "mine");
}

TEST(MlflowLogger, SaysHowFarTheRunIs) {
  const TemporaryFolder folder;
  MlflowLogger logger({.save_dir = folder / "mlruns"});
  log_one(logger, "m", 1, 0);
  const auto meta = logger.log_dir() / "meta.yaml";
  EXPECT_THAT(content(meta), HasSubstr("status: 1\n"));
  EXPECT_THAT(content(meta), HasSubstr("end_time: null\n"));
  logger.finalize("failed");
  EXPECT_THAT(content(meta), HasSubstr("status: 4\n"));
  logger.finalize("success");
  EXPECT_THAT(content(meta), HasSubstr("status: 3\n"));
  EXPECT_THAT(content(meta), ::testing::Not(HasSubstr("end_time: null\n")));
}

TEST(MlflowLogger, GoesOnWithARun) {
  const TemporaryFolder folder;
  MlflowLogger first({.save_dir = folder / "mlruns"});
  log_one(first, "m", 1, 0);
  first.finalize("failed");
  MlflowLogger second({.save_dir = folder / "mlruns", .run_id = first.version()});
  log_one(second, "m", 2, 1);
  EXPECT_EQ(second.log_dir(), first.log_dir());
  EXPECT_THAT(content(first.log_dir() / "metrics" / "m"), MatchesRegex("[0-9]+ 1.0 0\n[0-9]+ 2.0 1\n"));
  EXPECT_THAT(content(first.log_dir() / "meta.yaml"), HasSubstr("status: 1\n"));
  MlflowLogger absent({.save_dir = folder / "mlruns", .run_id = "0123"});
  test::expect_error<ConfigError>([&] { (void)absent.version(); },
                                  {"run_id 0123", (folder / "mlruns").string()});
}

TEST(MlflowLogger, WritesTheOthersWhenOneMetricHasNoPlace) {
  const TemporaryFolder folder;
  MlflowLogger logger({.save_dir = folder / "mlruns"});
  std::filesystem::create_directories(logger.log_dir() / "metrics" / "a");
  log_one(logger, "a", 1, 0);
  log_one(logger, "c", 3, 2);
  logger.finalize("success");
  EXPECT_THAT(content(logger.log_dir() / "metrics" / "c"), MatchesRegex("[0-9]+ 3.0 2\n"));
}

TEST(MlflowLogger, TellsNamesApartThatWouldBeOneFile) {
  const TemporaryFolder folder;
  MlflowLogger logger({.save_dir = folder / "mlruns"});
  const char* const names[] = {"a", "a:", "a/b", "a_b", "d/e", "d"};
  for (int step = 0; step < 6; ++step) log_one(logger, names[step], step, step);
  logger.finalize("success");
  const char* const files[] = {"a", "a-2", "a_b", "a_b-2", "d/e", "d-2"};
  for (int step = 0; step < 6; ++step) {
    EXPECT_THAT(content(logger.log_dir() / "metrics" / files[step]),
                MatchesRegex("[0-9]+ " + std::to_string(step) + ".0 " + std::to_string(step) + "\n"));
  }
}

TEST(MlflowStore, FindsExperimentsByName) {
  const TemporaryFolder folder;
  const auto id = detail::mlflow_experiment(folder / "s", "a: \"b\"");
  EXPECT_EQ(detail::mlflow_experiment(folder / "s", "a: \"b\""), id);
  EXPECT_NE(detail::mlflow_experiment(folder / "s", "other"), id);
  EXPECT_EQ(detail::mlflow_experiment(folder / "s", "Default"), "0");
  EXPECT_THAT(id, MatchesRegex("[0-9]+"));
  // Renamed and deleted ones keep their ids.
  folder.file("s/" + id + "/meta.yaml", "name: renamed\n");
  const auto second = detail::mlflow_experiment(folder / "s", "a: \"b\"");
  EXPECT_NE(second, id);
  fs::create_directory(folder / "s" / ".trash");
  fs::rename(folder / "s" / second, folder / "s" / ".trash" / second);
  const auto third = detail::mlflow_experiment(folder / "s", "a: \"b\"");
  EXPECT_TRUE(third != id && third != second);
}

TEST(MlflowStore, ProcessesShareAnExperiment) {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int process = 0; process < 4; ++process) {
    children.push_back(test::start_forked([&] {
      MlflowLogger logger({.save_dir = folder / "s"});
      log_one(logger, "m", 1, 0);
      logger.finalize("success");
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  const auto id = detail::mlflow_experiment(folder / "s", "lightning_logs");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "s"), {}), 2);       // that and Default
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "s" / id), {}), 5);  // four runs and meta.yaml
}

TEST(MlflowStore, KeysStayInTheirFolder) {
  EXPECT_EQ(detail::mlflow_key("val/loss 1.x_-"), "val/loss 1.x_-");
  EXPECT_EQ(detail::mlflow_key("../../etc/passwd"), "etc/passwd");
  EXPECT_EQ(detail::mlflow_key("/a//./b/"), "a/b");
  EXPECT_EQ(detail::mlflow_key("acc@5%"), "acc5");
  EXPECT_EQ(detail::mlflow_key(".../..0m/..b"), "0m/..b");
  EXPECT_EQ(detail::mlflow_key("..."), "unnamed");
  EXPECT_EQ(detail::mlflow_key("\xff.."), "unnamed");
  EXPECT_EQ(detail::mlflow_key(std::string(1000, 'a')).size(), 250u);
}

}  // namespace
}  // namespace lockstep
