#include <gtest/gtest.h>
#include <lockstep/loggers/loggers.h>

#include <cmath>
#include <fstream>
#include <limits>

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

TEST(CsvLogger, PutsTheFilesOfOlderRunsAside) {
  const test::TemporaryFolder folder;
  for (const double value : {1, 2, 3}) {
    CsvLogger logger(folder.path());
    logger.log_metrics(std::vector<Metric>{{"m", value}}, 0, 0);
    logger.finalize("success");
  }
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,m\n0,0,3\n");
  EXPECT_EQ(test::content(folder / "metrics.1.csv"), "epoch,step,m\n0,0,1\n");
  EXPECT_EQ(test::content(folder / "metrics.2.csv"), "epoch,step,m\n0,0,2\n");
}

TEST(CsvLogger, ForgetsTheRowsThatAreInTheFile) {
  const test::TemporaryFolder folder;
  CsvLogger logger(folder.path(), 1);
  logger.log_metrics(std::vector<Metric>{{"a\nb", 1}, {"m", 1}}, 0, 0);
  folder.file("metrics.csv", "epoch,step,\"a\nb\",m\n0,0,7,8\n");
  logger.log_metrics(std::vector<Metric>{{"c", 2}}, 0, 1);
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,\"a\nb\",c,m\n0,0,7,,8\n0,1,,2,\n");
}

TEST(CsvLogger, AFileThatWasRemovedBeginsAnewWithItsHeader) {
  const test::TemporaryFolder folder;
  CsvLogger logger(folder.path(), 1);
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  std::filesystem::remove(folder / "metrics.csv");
  logger.log_metrics(std::vector<Metric>{{"m", 2}}, 0, 1);
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,m\n0,1,2\n");
}

TEST(CsvLogger, WritesWhatIsNotFinite) {
  const test::TemporaryFolder folder;
  CsvLogger logger(folder.path());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  logger.log_metrics(std::vector<Metric>{{"a", nan}, {"b", -nan}, {"c", -INFINITY}}, 0, 0);
  logger.finalize("success");
  EXPECT_EQ(test::content(folder / "metrics.csv"), "epoch,step,a,b,c\n0,0,nan,nan,-inf\n");
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
  std::ofstream(folder / "later") << "a file";
  CsvLogger logger(folder / "later", 1);
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  std::filesystem::remove(folder / "later");
  logger.log_metrics(std::vector<Metric>{{"m", 2}}, 0, 1);
  EXPECT_EQ(test::content(folder / "later" / "metrics.csv"), "epoch,step,m\n0,0,1\n0,1,2\n");
}

TEST(CsvLogger, MakesItsFolder) {
  const test::TemporaryFolder folder;
  const auto place = folder / "not" / "there";
  CsvLogger logger(place);
  logger.log_hyperparams({{"lr", 0.5}});
  EXPECT_TRUE(std::filesystem::exists(place / "hparams.yaml"));
  std::filesystem::remove_all(folder / "not");
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  logger.finalize("success");
  EXPECT_EQ(test::content(place / "metrics.csv"), "epoch,step,m\n0,0,1\n");
}

TEST(CsvLogger, NeverStopsTraining) {
  CsvLogger logger("/dev/null/folder");
  logger.log_metrics(std::vector<Metric>{{"m", 1}}, 0, 0);
  EXPECT_NO_THROW(logger.finalize("success"));
}

}  // namespace
}  // namespace lockstep
