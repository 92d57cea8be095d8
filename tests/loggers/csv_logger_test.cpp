#include <gtest/gtest.h>
#include <lockstep/loggers/csv_logger.h>

#include "support/temporary_folder.h"

namespace lockstep {
namespace {

TEST(CsvLogger, WritesEpochStepAndSortedColumns) {
  const test::TemporaryFolder folder;
  CsvLogger logger(folder.path());
  logger.log_metrics(std::vector<Metric>{{"loss", 0.5}, {"acc", 1}}, 0, 9);
  logger.log_metrics(std::vector<Metric>{}, 0, 10);
  logger.log_metrics(std::vector<Metric>{{"loss", 0.25}}, 1, 19);
  logger.finalize("success");
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,acc,loss\n0,9,1,0.5\n1,19,,0.25\n");
}

TEST(CsvLogger, ANewColumnGoesIntoTheRowsThatWereWritten) {
  const test::TemporaryFolder folder;
  CsvLogger logger(folder.path(), 1);
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  logger.log_metrics(std::vector<Metric>{{"a", 2}}, 0, 1);
  logger.log_metrics(std::vector<Metric>{{"m", 3}}, 0, 2);
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,a,m\n0,0,,1\n0,1,2,\n0,2,,3\n");
}

TEST(CsvLogger, ReplacesTheFileOfAnOlderRun) {
  const test::TemporaryFolder folder;
  folder.file("metrics.csv", "old");
  CsvLogger logger(folder.path());
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  logger.flush();
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,m\n0,0,1\n");
}

TEST(CsvLogger, QuotesNamesThatNeedIt) {
  const test::TemporaryFolder folder;
  CsvLogger logger(folder.path());
  logger.log_metrics(std::vector<Metric>{{"acc,\"top5\"", 1}}, 0, 0);
  logger.finalize("success");
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,\"acc,\"\"top5\"\"\"\n0,0,1\n");
}

TEST(CsvLogger, WritesAllRowsOnceItCan) {
  const test::TemporaryFolder folder;
  CsvLogger logger(folder / "later", 1);
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  std::filesystem::create_directory(folder / "later");
  logger.log_metrics(std::vector<Metric>{{"m", 2}}, 0, 1);
  EXPECT_EQ(test::content(folder / "later" / "metrics.csv"), "epoch,step,m\n0,0,1\n0,1,2\n");
}

TEST(CsvLogger, NeverStopsTraining) {
  CsvLogger logger("/nonexistent_folder");
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  EXPECT_NO_THROW(logger.finalize("success"));
}

}  // namespace
}  // namespace lockstep
