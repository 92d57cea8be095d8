#include "report/run_files.h"

#include <gmock/gmock.h>
#include <lockstep/profilers/profilers.h>

#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

void fill(Profiler& profiler) {
  const Profiler::Clock::time_point begin{};
  profiler.setup("fit", 0);
  for (int i = 0; i < 4; ++i)
    profiler.record(Action("with | bar"), begin, begin + std::chrono::milliseconds(500));
  profiler.record(Action("backward"), begin, begin + std::chrono::seconds(5));
  profiler.describe();
}

void expect_both(const std::vector<ProfiledAction>& actions, std::optional<std::int64_t> calls) {
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(actions[0].name, "backward");
  EXPECT_DOUBLE_EQ(actions[0].total_s, 5);
  EXPECT_EQ(actions[1].name, "with | bar");
  EXPECT_DOUBLE_EQ(actions[1].total_s, 2);
  EXPECT_EQ(actions[1].calls, calls);
}

class ProfilerTable : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
};

TEST_F(ProfilerTable, ReadsTheSimpleProfilers) {
  SimpleProfiler profiler({.dirpath = folder_.path(), .filename = "perf"});
  fill(profiler);
  expect_both(read_profiler_table(folder_ / "fit-perf-0.txt"), 4);
}

TEST_F(ProfilerTable, ReadsTheShortForm) {
  SimpleProfiler profiler({.dirpath = folder_.path(), .filename = "perf", .extended = false});
  fill(profiler);
  expect_both(read_profiler_table(folder_ / "fit-perf-0.txt"), std::nullopt);
}

TEST_F(ProfilerTable, ReadsTheAdvancedProfilers) {
  AdvancedProfiler profiler({.dirpath = folder_.path(), .filename = "perf"});
  fill(profiler);
  expect_both(read_profiler_table(folder_ / "fit-perf-0.txt"), 4);
}

TEST_F(ProfilerTable, TheLastTableCounts) {
  const auto file = folder_.file(
      "a.txt",
      "|  Action | Total time (s) |\n|  old  |  1  |\n\n|  Action | Total time (s) |\n|  new  |  2  |\n");
  ASSERT_EQ(read_profiler_table(file).size(), 1U);
  EXPECT_EQ(read_profiler_table(file)[0].name, "new");
}

TEST_F(ProfilerTable, OtherTextHasNone) {
  EXPECT_TRUE(
      read_profiler_table(folder_.file("a.txt", "|\n||\n| Action\n|x\n| Action | b |\n|  | |\n")).empty());
}

}  // namespace
}  // namespace lockstep::detail
