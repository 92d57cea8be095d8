#include <gtest/gtest.h>
#include <lockstep/loggers/loggers.h>

#include <limits>

#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::content;

TEST(JsonlLogger, WritesAnObjectPerRow) {
  const test::TemporaryFolder folder;
  JsonlLogger logger(folder.path());
  logger.log_metrics(std::vector<Metric>{{"loss", 0.5}, {"acc", 1}}, 0, 9);
  logger.log_metrics(std::vector<Metric>{}, 0, 10);
  logger.log_metrics(std::vector<Metric>{{"loss", 1e-30}}, 1, 19);
  logger.finalize("success");
  EXPECT_EQ(content(folder / "metrics.jsonl"),
            "{\"epoch\":0,\"step\":9,\"loss\":0.5,\"acc\":1.0}\n{\"epoch\":1,\"step\":19,\"loss\":1e-30}\n");
}

TEST(JsonlLogger, WritesWhatIsNotFiniteAsText) {
  const test::TemporaryFolder folder;
  JsonlLogger logger(folder.path());
  const double infinity = std::numeric_limits<double>::infinity();
  logger.log_metrics(
      std::vector<Metric>{{"a", infinity}, {"b", -infinity}, {"c", std::numeric_limits<double>::quiet_NaN()}},
      0, 0);
  logger.flush();
  EXPECT_EQ(content(folder / "metrics.jsonl"),
            "{\"epoch\":0,\"step\":0,\"a\":\"Infinity\",\"b\":\"-Infinity\",\"c\":\"NaN\"}\n");
}

TEST(JsonlLogger, EscapesNamesAndLetsThemOverrideTheStep) {
  const test::TemporaryFolder folder;
  JsonlLogger logger(folder.path());
  logger.log_metrics(std::vector<Metric>{{"\"\n\xff", 1}, {"step", 7}}, 0, 0);
  logger.flush();
  EXPECT_EQ(content(folder / "metrics.jsonl"), "{\"epoch\":0,\"step\":7,\"\\\"\\n\xef\xbf\xbd\":1.0}\n");
}

TEST(JsonlLogger, ReplacesTheFileOfAnOlderRunAndMakesItsFolder) {
  const test::TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    JsonlLogger logger(folder / "run");
    logger.log_hyperparams({{"run", run}});
    logger.log_metrics(std::vector<Metric>{{"m", run}}, 0, 0);
    logger.finalize("success");
  }
  EXPECT_EQ(content(folder / "run" / "metrics.jsonl"), "{\"epoch\":0,\"step\":0,\"m\":1.0}\n");
  EXPECT_EQ(content(folder / "run" / "hparams.yaml"), "run: 1\n");
}

TEST(JsonlLogger, PutsTheFileOfAnOlderRunAside) {
  const test::TemporaryFolder folder;
  folder.file("metrics.jsonl", "old\n");
  JsonlLogger logger(folder.path(), 1);
  EXPECT_EQ(content(folder / "metrics.jsonl"), "old\n");
  for (const double value : {1, 2}) logger.log_metrics(std::vector<Metric>{{"m", value}}, 0, 0);
  EXPECT_EQ(content(folder / "metrics.1.jsonl"), "old\n");
  EXPECT_EQ(content(folder / "metrics.jsonl"),
            "{\"epoch\":0,\"step\":0,\"m\":1.0}\n{\"epoch\":0,\"step\":0,\"m\":2.0}\n");
}

}  // namespace
}  // namespace lockstep
