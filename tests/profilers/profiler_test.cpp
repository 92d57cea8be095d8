#include <gmock/gmock.h>
#include <lockstep/profilers/profiler.h>

#include <stdexcept>
#include <thread>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

/// Notes the order in which calls ended.
class Recorder final : public Profiler {
 public:
  using Profiler::Profiler;

  void record(Action action, Clock::time_point begin, Clock::time_point end) noexcept override {
    EXPECT_LE(begin, end);
    calls.push_back(action.name());
    begins.push_back(begin);
  }
  std::string summary() const override { return text; }

  std::vector<std::string> calls;
  std::vector<Clock::time_point> begins;
  std::string text = "the report\n";
};

TEST(ProfileScope, WithoutAProfilerDoesNothing) {
  const auto known = Action::all().size();
  {
    const ProfileScope scope(nullptr, "profiler_test.never_registered");
    EXPECT_THROW(
        {
          const ProfileScope inner(nullptr, Action("profiler_test.null"));
          throw std::runtime_error("x");
        },
        std::runtime_error);
  }
  EXPECT_LE(Action::all().size(), known + 1);
}

TEST(ProfileScope, Nests) {
  Recorder profiler;
  {
    const auto outer = profiler.profile("outer");
    const auto inner = profiler.profile(Action("inner"));
  }
  EXPECT_THAT(profiler.calls, ElementsAre("inner", "outer"));
  EXPECT_LE(profiler.begins[1], profiler.begins[0]);
}

int factorial(Profiler& profiler, int n) {
  const auto scope = profiler.profile("factorial");
  return n == 0 ? 1 : n * factorial(profiler, n - 1);
}

TEST(ProfileScope, CountsEachCallOfARecursion) {
  Recorder profiler;
  EXPECT_EQ(factorial(profiler, 4), 24);
  EXPECT_EQ(profiler.calls.size(), 5U);
}

TEST(ProfileScope, EndsWithAnException) {
  Recorder profiler;
  const auto fail = [&] {
    const ProfileScope scope(&profiler, "fails");
    throw std::runtime_error("x");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_THAT(profiler.calls, ElementsAre("fails"));
}

TEST(Profiler, StartsAndStopsInAnyOrder) {
  Recorder profiler;
  profiler.start("a");
  profiler.start("b");
  profiler.stop("a");
  profiler.stop("b");
  profiler.start("a");
  profiler.stop("a");
  EXPECT_THAT(profiler.calls, ElementsAre("a", "b", "a"));
}

TEST(Profiler, RefusesToStopWhatWasNotStarted) {
  Recorder profiler, other;
  other.start("x");
  test::expect_error<ConfigError>([&] { profiler.stop("x"); },
                                  {"Attempting to stop recording an action (x) which was never started."});
  profiler.start("x");
  profiler.stop("x");
  EXPECT_THROW(profiler.stop("x"), ConfigError);
}

TEST(Profiler, RefusesToStartTwice) {
  Recorder profiler;
  profiler.start("x");
  test::expect_error<ConfigError>([&] { profiler.start("x"); },
                                  {"Attempted to start x which has already started."});
  profiler.stop("x");
  EXPECT_THAT(profiler.calls, ElementsAre("x"));
}

TEST(Profiler, ActionsOfThreadsAreApart) {
  Recorder profiler;
  profiler.start("x");
  std::jthread([&] {
    EXPECT_THROW(profiler.stop("x"), ConfigError);
    profiler.start("x");
    profiler.stop("x");
  }).join();
  profiler.stop("x");
  EXPECT_EQ(profiler.calls.size(), 2U);
}

TEST(Profiler, WritesAFilePerStageAndRank) {
  const test::TemporaryFolder folder;
  Recorder profiler({.dirpath = folder / "made", .filename = "perf"});
  profiler.setup("fit", 3, folder / "log_dir");
  profiler.describe();
  profiler.setup("test", 3, folder / "log_dir");
  profiler.describe();
  profiler.describe();
  EXPECT_EQ(test::content(folder / "made/fit-perf-3.txt"), "the report\n");
  EXPECT_EQ(test::content(folder / "made/test-perf-3.txt"), "the report\nthe report\n");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(Profiler, WritesIntoTheLogFolderWhenItHasNone) {
  const test::TemporaryFolder folder;
  Recorder profiler({.filename = "perf"});
  profiler.setup("fit", 0, folder.path());
  profiler.describe();
  EXPECT_EQ(test::content(folder / "fit-perf-0.txt"), "the report\n");
}

TEST(Profiler, PrintsOnRankZeroWithoutAFileName) {
  for (const int rank : {0, 1}) {
    const test::TemporaryFolder folder;
    Recorder profiler({.dirpath = folder.path()});
    profiler.setup("fit", rank);
    ::testing::internal::CaptureStderr();
    profiler.describe();
    const auto printed = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(printed.find("the report") != std::string::npos, rank == 0);
    EXPECT_EQ(folder.entries(), 0);
  }
}

TEST(Profiler, AReportThatCannotBeWrittenIsAWarning) {
  const test::TemporaryFolder folder;
  Recorder profiler({.dirpath = folder.file("taken", "") / "below", .filename = "perf"});
  ::testing::internal::CaptureStderr();
  profiler.describe();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("warning: the profiler's report"));
}

}  // namespace
}  // namespace lockstep
