#include "report/run_files.h"

#include <gmock/gmock.h>
#include <lockstep/loggers/loggers.h>

#include <cmath>
#include <limits>
#include <tuple>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;

using Points = std::vector<std::tuple<std::int64_t, std::int64_t, double>>;  // step, epoch, value

Points points(const MetricCurve& curve) {
  Points points;
  for (const auto& [step, epoch, value] : curve.points) points.emplace_back(step, epoch, value);
  return points;
}

std::vector<std::string> names(const std::vector<MetricCurve>& curves) {
  std::vector<std::string> names;
  for (const auto& curve : curves) names.push_back(curve.name);
  return names;
}

class MetricsFile : public ::testing::Test {
 protected:
  std::vector<MetricCurve> read(std::string_view text) {
    return read_metrics_file(folder_.file("metrics.csv", text));
  }
  void expect_refused(std::string_view text, const std::vector<std::string>& words) {
    test::expect_error<DataError>([&] { read(text); }, words);
  }

  test::TemporaryFolder folder_;
};

TEST_F(MetricsFile, GivesACurvePerColumnThatHasValues) {
  const auto curves = read("epoch,step,b,a,empty\n0,4,1.5,,\n0,9,,2,\n1,14,-3e-4,,\n");
  EXPECT_THAT(names(curves), ElementsAre("a", "b"));
  EXPECT_EQ(points(curves[0]), (Points{{9, 0, 2}}));
  EXPECT_EQ(points(curves[1]), (Points{{4, 0, 1.5}, {14, 1, -3e-4}}));
}

TEST_F(MetricsFile, ReadsBackWhatCsvLoggerWrites) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  CsvLogger logger(folder_.path());
  logger.log_metrics(std::vector<Metric>{{"with, \"quotes\"\nand a line", 0.1}, {"loss", 1.0 / 3}}, 0, 1);
  logger.log_metrics(std::vector<Metric>{{"loss", nan}}, 0, 2);
  logger.log_metrics(std::vector<Metric>{{"loss", -infinity}}, 1, 3);
  logger.flush();
  const auto curves = read_metrics_file(folder_ / "metrics.csv");
  EXPECT_THAT(names(curves), ElementsAre("loss", "with, \"quotes\"\nand a line"));
  const auto& loss = curves[0].points;
  ASSERT_EQ(loss.size(), 3U);
  EXPECT_EQ(loss[0].value, 1.0 / 3);
  EXPECT_TRUE(std::isnan(loss[1].value));
  EXPECT_EQ(loss[2].value, -infinity);
}

TEST_F(MetricsFile, ReadsLightnings) {  // its columns are in another order, and epochs may be missing
  const auto curves = read("acc,epoch,lr-SGD,step\r\n,,0.1,4\r\n0.5,0,,9\r\n,,0.2,14\r\n");
  EXPECT_THAT(names(curves), ElementsAre("acc", "lr-SGD"));
  EXPECT_EQ(points(curves[1]), (Points{{4, 0, 0.1}, {14, 0, 0.2}}));
}

TEST_F(MetricsFile, LeavesOutALineThatIsBeingWritten) {
  EXPECT_EQ(points(read("epoch,step,a\n0,1,10\n0,2,11")[0]), (Points{{1, 0, 10}}));
  EXPECT_EQ(points(read("epoch,step,a\n0,1,10\n0,")[0]), (Points{{1, 0, 10}}));
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("epoch,step,a\n").empty());
}

TEST_F(MetricsFile, TakesNumbersThatAreTooLargeOrTooSmall) {
  const auto curve = read("epoch,step,a\n0,1,1e999\n0,2,-1e999\n0,3,1e-999\n")[0];
  EXPECT_EQ(curve.points[0].value, std::numeric_limits<double>::infinity());
  EXPECT_EQ(curve.points[1].value, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(curve.points[2].value, 0);
}

TEST_F(MetricsFile, NamesFileAndLineOfWhatIsWrong) {
  expect_refused("epoch,step,a\n0,1,2\n0,2,x\n", {"metrics.csv:3", "column 3 holds no number", "'x'"});
  expect_refused("epoch,step,a\n0,1\n0,2,3\n",
                 {"metrics.csv:2", "wrong number of fields", "expected 3", "got 2"});
  expect_refused("epoch,step,a\n0,,2\n", {"metrics.csv:2", "no step"});
  expect_refused("epoch,step,a\n0,1e300,2\n", {"metrics.csv:2", "no whole number"});
  expect_refused("loss,step\n1,2\n", {"metrics.csv:1", "no column 'epoch'"});
}

TEST_F(MetricsFile, MayHaveNumbersOfTheProgramForEpochAndStep) {
  const auto curve = read("epoch,step,a\n0.5,1,2\n1.5,2.5,3\n").at(0);
  EXPECT_EQ(curve.points[1].epoch, 1);
  EXPECT_EQ(curve.points[1].step, 2);
}

TEST_F(MetricsFile, JoinsTheFilesOfAFolderUsedAgain) {
  folder_.file("metrics.1.csv", "epoch,step,loss,old\n0,4,40,1\n0,9,90,\n1,14,140,\n");
  folder_.file("metrics.3.csv",
               "epoch,step,loss\n0,9,91\n");  // resumed at step 5; the run between logged nothing
  folder_.file("metrics.csv", "epoch,step,loss,test\n1,14,141,\n0,0,,7\n");
  const auto curves = read_metrics(folder_.path());
  EXPECT_THAT(names(curves), ElementsAre("loss", "old", "test"));
  EXPECT_EQ(points(curves[0]), (Points{{4, 0, 40}, {9, 0, 91}, {14, 1, 141}}));
  EXPECT_EQ(points(curves[1]), (Points{{4, 0, 1}}));  // nobody wrote it again
  EXPECT_EQ(points(curves[2]), (Points{{0, 0, 7}}));
}

TEST_F(MetricsFile, CurvesAreByStep) {
  EXPECT_EQ(points(read("epoch,step,a\n1,9,1\n0,3,2\n0,3,3\n")[0]),
            (Points{{3, 0, 2}, {3, 0, 3}, {9, 1, 1}}));
}

TEST_F(MetricsFile, AnEvaluationInTheRunsFolderIsNoPointOfItsCurves) {
  folder_.file("metrics.1.csv", "epoch,step,val_loss\n0,2,3\n1,4,2\n");
  folder_.file("metrics.csv", "epoch,step,test_loss,val_loss\n0,0,5,7\n");
  const auto curves = read_metrics(folder_.path());
  ASSERT_THAT(names(curves), ElementsAre("test_loss", "val_loss"));
  EXPECT_EQ(points(curves[0]), (Points{{0, 0, 5}}));
  EXPECT_EQ(points(curves[1]), (Points{{2, 0, 3}, {4, 1, 2}}));
}

}  // namespace
}  // namespace lockstep::detail
