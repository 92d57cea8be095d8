#include <gmock/gmock.h>
#include <lockstep/report/report.h>

#include <lockstep/base/error.h>
#include <lockstep/profilers/profilers.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class RunRecordTest : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
};

TEST_F(RunRecordTest, HoldsWhatTheFilesSay) {
  folder_.file("metrics.csv", "epoch,step,loss\n0,1,2\n");
  folder_.file("summary.json", R"({"status": "success"})");
  folder_.file("failure.json", R"({"message": "rank 0 died"})");
  folder_.file("config.yaml", "trainer:\n  devices: \"2\"\n  plugins: [a, b]\nseed: null\nempty: {}\n");
  const auto run = read_run(folder_.path());
  EXPECT_EQ(run.curves.at(0).name, "loss");
  EXPECT_EQ(run.summary->status, "success");
  EXPECT_EQ(run.failure->message, "rank 0 died");
  EXPECT_THAT(run.config, ElementsAre(Pair("trainer.devices", "2"), Pair("trainer.plugins", "[a, b]"),
                                      Pair("seed", "null"), Pair("empty", "{}")));
  EXPECT_TRUE(run.times.empty());
  EXPECT_TRUE(run.actions.empty());
}

TEST_F(RunRecordTest, EachFileButOneMayBeMissing) {
  folder_.file("summary.json", "{}");
  const auto run = read_run(folder_.path());
  EXPECT_TRUE(run.summary);
  EXPECT_FALSE(run.failure);
  EXPECT_TRUE(run.curves.empty());
}

TEST_F(RunRecordTest, FindsWhatProfilersWrote) {
  folder_.file("summary.json", "{}");
  TraceProfiler trace({.dirpath = folder_ / "profiles"});
  SimpleProfiler simple({.dirpath = folder_.path(), .filename = "perf"});
  for (Profiler* profiler : std::initializer_list<Profiler*>{&trace, &simple}) {
    profiler->setup("fit", 0);
    profiler->record(Action("backward"), {}, Profiler::Clock::time_point(std::chrono::seconds(2)));
    profiler->describe();
  }
  const auto run = read_run(folder_.path());
  ASSERT_EQ(run.times.size(), 1U);
  EXPECT_NEAR(run.times[0].ranks.at(0).compute_s, 2, 1e-6);
  ASSERT_EQ(run.actions.size(), 1U);
  EXPECT_EQ(run.actions[0].name, "backward");
}

TEST_F(RunRecordTest, RefusesWhatIsNoRun) {
  test::expect_error<IoError>([&] { read_run(folder_.path()); }, {"no run's folder", "metrics.csv"});
  test::expect_error<IoError>([&] { read_run(folder_ / "none"); }, {"none", "nothing there"});
  test::expect_error<IoError>([&] { read_run(folder_.file("file", "")); }, {"no run's folder", "a file"});
  folder_.file("config.yaml", "a: 1\nb: [\n");
  test::expect_error<ConfigError>([&] { read_run(folder_.path()); }, {"config.yaml:"});
}

TEST_F(RunRecordTest, NamesTellRunsApart) {
  const auto names = [](std::vector<std::filesystem::path> folders) {
    std::vector<RunRecord> runs;
    for (const auto& folder : folders) runs.push_back({.folder = folder});
    return run_names(runs);
  };
  EXPECT_THAT(names({"/a/one", "/a/two/"}), ElementsAre("one", "two"));
  EXPECT_THAT(names({"/a/run", "/b/run", "/c/last"}), ElementsAre("a/run", "b/run", "c/last"));
  EXPECT_THAT(names({"runs/digits/version_3"}), ElementsAre("digits/version_3"));
  EXPECT_THAT(names({"/same", "/same"}), ElementsAre("same", "same"));
}

}  // namespace
}  // namespace lockstep
