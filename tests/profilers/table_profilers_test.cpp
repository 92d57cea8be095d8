// SimpleProfiler and AdvancedProfiler: what they count, over threads.
#include <gmock/gmock.h>
#include <lockstep/profilers/profilers.h>

#include <sstream>
#include <thread>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void record(Profiler& profiler, const char* name, milliseconds duration) {
  const Profiler::Clock::time_point begin{};
  profiler.record(Action(name), begin, begin + duration);
}

/// The cells of the line of `action`, without padding.
std::vector<std::string> cells(const std::string& report, const std::string& action) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("|  " + action) != 0) continue;
    std::vector<std::string> found;
    std::istringstream row(line.substr(1));
    for (std::string cell; std::getline(row, cell, '|');) {
      const auto first = cell.find_first_not_of(" \t");
      found.push_back(cell.substr(first, cell.find_last_not_of(" \t") - first + 1));
    }
    return found;
  }
  return {};
}

TEST(SimpleProfiler, ReportsMeanCallsAndTotal) {
  SimpleProfiler profiler;
  profiler.setup("fit", 0);
  record(profiler, "twice", milliseconds(250));
  record(profiler, "twice", milliseconds(750));
  record(profiler, "once", milliseconds(5));
  const auto report = profiler.summary();
  EXPECT_THAT(report, ::testing::StartsWith("FIT Profiler Report\n"));
  const auto twice = cells(report, "twice");
  ASSERT_EQ(twice.size(), 5U);
  EXPECT_THAT((std::vector(twice.begin(), twice.begin() + 4)), ElementsAre("twice", "0.5", "2", "1.0"));
  EXPECT_EQ(cells(report, "once")[1], "0.005");
  EXPECT_EQ(cells(report, "Total")[2], "3");
  EXPECT_LT(report.find("twice"), report.find("once"));
}

TEST(SimpleProfiler, PercentagesAreOfTheTimeSinceTheStart) {
  SimpleProfiler profiler;
  const auto begin = Profiler::Clock::now();
  std::this_thread::sleep_for(milliseconds(20));
  profiler.record(Action("all"), begin, Profiler::Clock::now());
  const auto all = cells(profiler.summary(), "all");
  EXPECT_GT(std::stod(all[4]), 0);
  EXPECT_LE(std::stod(all[4]), 100);
}

TEST(SimpleProfiler, CanLeaveColumnsOut) {
  SimpleProfiler profiler({.extended = false});
  record(profiler, "action", milliseconds(250));
  EXPECT_THAT(cells(profiler.summary(), "action"), ElementsAre("action", "0.25", "0.25"));
}

TEST(SimpleProfiler, AddsUpThreadsThatEndedAndThoseThatGoOn) {
  SimpleProfiler profiler;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int call = 0; call < 1000; ++call) record(profiler, "shared", milliseconds(1));
      });
    }
  }
  record(profiler, "shared", milliseconds(1));
  EXPECT_EQ(cells(profiler.summary(), "shared")[2], "12001");
}

TEST(SimpleProfiler, CanBeReadWhileThreadsRecord) {
  SimpleProfiler profiler;
  std::jthread thread([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); i = (i + 1) % 200) {
      record(profiler, ("reading." + std::to_string(i)).c_str(), milliseconds(1));
    }
  });
  for (int i = 0; i < 50; ++i) EXPECT_THAT(profiler.summary(), HasSubstr("Profiler Report"));
}

TEST(SimpleProfiler, AnEndBeforeTheBeginCountsAsNoTime) {
  SimpleProfiler profiler;
  record(profiler, "backwards", milliseconds(-5));
  EXPECT_EQ(cells(profiler.summary(), "backwards")[3], "0.0");
}

TEST(AdvancedProfiler, ReportsTheSpread) {
  AdvancedProfiler profiler;
  profiler.setup("fit", 0);
  for (int i = 1; i <= 100; ++i) record(profiler, "spread", milliseconds(i));
  const auto report = profiler.summary();
  EXPECT_THAT(report, ::testing::StartsWith("FIT Profiler Report\n"));
  EXPECT_THAT(cells(report, "Action"), ElementsAre("Action", "Num calls", "Total time (s)", "Mean (s)",
                                                   "Min (s)", "p50 (s)", "p90 (s)", "p99 (s)", "Max (s)"));
  const auto spread = cells(report, "spread");
  ASSERT_EQ(spread.size(), 9U);
  EXPECT_EQ(spread[1], "100");
  EXPECT_EQ(spread[2], "5.05");
  EXPECT_EQ(spread[3], "0.0505");
  EXPECT_EQ(spread[4], "0.001");
  EXPECT_NEAR(std::stod(spread[5]), 0.050, 0.050 / 127);
  EXPECT_NEAR(std::stod(spread[6]), 0.090, 0.090 / 127);
  EXPECT_NEAR(std::stod(spread[7]), 0.099, 0.099 / 127);
  EXPECT_EQ(spread[8], "0.1");
}

TEST(AdvancedProfiler, SortsByTotalAndAddsUpThreads) {
  AdvancedProfiler profiler;
  record(profiler, "little", milliseconds(3));
  record(profiler, "much", milliseconds(2));
  std::jthread([&] { record(profiler, "much", milliseconds(4)); }).join();
  const auto report = profiler.summary();
  EXPECT_LT(report.find("much"), report.find("little"));
  EXPECT_EQ(cells(report, "much")[1], "2");
  EXPECT_EQ(cells(report, "much")[4], "0.002");
  EXPECT_EQ(cells(report, "much")[8], "0.004");
}

TEST(AdvancedProfiler, OfNothingIsTheHeading) {
  EXPECT_EQ(AdvancedProfiler().summary(), "Profiler Report\n\n");
}

}  // namespace
}  // namespace lockstep
