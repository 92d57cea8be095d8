#include "loggers/make_logger.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace lockstep {
namespace {

TEST(CsvMonitor, WritesAFileForEachMetric) {
  const test::TemporaryFolder folder;
  detail::CsvMonitor monitor(folder / "job");
  monitor.log_metrics(std::vector<Metric>{{"Train/Samples/lr", 0.5}, {"loss of all", 2}}, 0, 8);
  monitor.log_metrics(std::vector<Metric>{{"Train/Samples/lr", 0.25}}, 0, 16);
  monitor.finalize("success");
  EXPECT_EQ(test::content(folder / "job/Train_Samples_lr.csv"), "step,lr\n8,0.5\n16,0.25\n");
  EXPECT_EQ(test::content(folder / "job/loss_of_all.csv"), "step,loss of all\n8,2\n");
}

TEST(CsvMonitor, ContinuesWhatIsThere) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {1, 2}) {
    detail::CsvMonitor monitor(folder.path());
    monitor.log_metrics(std::vector<Metric>{{"lr", 1}}, 0, step);
    monitor.finalize("success");
  }
  EXPECT_EQ(test::content(folder / "lr.csv"), "step,lr\n1,1\n2,1\n");
}

TEST(CsvMonitor, AFolderThatCannotBeMadeEndsNothing) {
  const test::TemporaryFolder folder;
  folder.file("job", "a file");
  detail::CsvMonitor monitor(folder / "job");
  monitor.log_metrics(std::vector<Metric>{{"lr", 1}}, 0, 1);
  monitor.finalize("success");
  EXPECT_EQ(test::content(folder / "job"), "a file");
}

}  // namespace
}  // namespace lockstep
