#include <gmock/gmock.h>
#include <lockstep/profilers/profilers.h>
#include <pthread.h>

#include <cmath>
#include <latch>
#include <map>
#include <thread>

#include <lockstep/base/error.h>
#include <nlohmann/json.hpp>

#include "support/json_file.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using test::json_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void record(Profiler& profiler, Action action, std::int64_t begin_ns, std::int64_t duration_ns) {
  const Profiler::Clock::time_point begin{nanoseconds(begin_ns)};
  profiler.record(action, begin, begin + nanoseconds(duration_ns));
}

void record(Profiler& profiler, const char* name, std::int64_t begin_ns, std::int64_t duration_ns) {
  record(profiler, Action(name), begin_ns, duration_ns);
}

/// The events of kind `ph`.
std::vector<json> events(const json& trace, const std::string& ph) {
  std::vector<json> found;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == ph) found.push_back(event);
  }
  return found;
}

std::vector<std::string> names(const std::vector<json>& events) {
  std::vector<std::string> found;
  for (const auto& event : events) found.push_back(event.at("name"));
  return found;
}

TEST(TraceProfiler, WritesCallsToTheNanosecond) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path()});
  profiler.setup("fit", 2);
  record(profiler, Action("all_reduce", ActionCategory::kCollective), 1'234'567'890'123'456, 1'001);
  const auto file = profiler.write();
  EXPECT_EQ(file, folder / "fit-trace-2.json");
  EXPECT_THAT(test::content(file), HasSubstr(R"("ts":1234567890123.456,"dur":1.001,)"));
  const auto calls = events(json_of(file), "X");
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].at("name"), "all_reduce");
  EXPECT_EQ(calls[0].at("cat"), "collective");
  EXPECT_EQ(calls[0].at("pid"), 2);
  EXPECT_EQ(calls[0].at("tid"), 1);
}

TEST(TraceProfiler, NamesProcessesAndThreads) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path()});
  profiler.setup("fit", 1);
  record(profiler, "on_main", 0, 1);
  std::jthread([&] {
    ::pthread_setname_np(::pthread_self(), "loader 0");
    record(profiler, "on_loader", 0, 1);
  }).join();
  const auto trace = json_of(profiler.write());
  const auto about = events(trace, "M");
  ASSERT_THAT(names(about), ElementsAre("process_name", "process_sort_index", "thread_name", "thread_name"));
  EXPECT_THAT(about[0].at("args").at("name").get<std::string>(), ::testing::StartsWith("rank 1 ("));
  EXPECT_EQ(about[1].at("args").at("sort_index"), 1);
  EXPECT_EQ(about[2].at("args").at("name"), "main");
  EXPECT_EQ(about[3].at("args").at("name"), "loader 0");
  EXPECT_NE(about[2].at("tid"), about[3].at("tid"));
  EXPECT_EQ(events(trace, "X")[1].at("tid"), about[3].at("tid"));
}

TEST(TraceProfiler, PutsAParentBeforeItsChildren) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path()});
  record(profiler, "first_child", 100, 10);
  record(profiler, "second_child", 120, 10);
  record(profiler, "parent", 100, 50);
  EXPECT_THAT(names(events(json_of(profiler.write()), "X")),
              ElementsAre("parent", "first_child", "second_child"));
}

TEST(TraceProfiler, WritesCounters) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path()});
  profiler.count(Action("bytes in use"), 0.1);
  profiler.count(Action("bytes in use"), 3e300);
  profiler.count(Action("bytes in use"), std::nan(""));
  const auto counters = events(json_of(profiler.write()), "C");
  ASSERT_EQ(counters.size(), 2U);
  EXPECT_EQ(counters[0].at("name"), "bytes in use");
  EXPECT_EQ(counters[0].at("args").at("value"), 0.1);
  EXPECT_EQ(counters[1].at("args").at("value"), 3e300);
  EXPECT_GT(counters[0].at("ts"), 0);
}

TEST(TraceProfiler, EscapesNames) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path()});
  const std::string odd = "\"quoted\" \\ \n\t\x01 gr\u00f6\u00dfe";
  record(profiler, odd.c_str(), 0, 1);
  record(profiler, "no utf-8: \xff", 1, 1);
  EXPECT_THAT(names(events(json_of(profiler.write()), "X")), ElementsAre(odd, "no utf-8: \ufffd"));
}

TEST(TraceProfiler, KeepsTheLastEventsAndSaysHowManyItDropped) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path(), .events_per_thread = 16});
  profiler.setup("fit", 0);
  for (int i = 0; i < 100; ++i) record(profiler, i < 84 ? "old" : "new", i, 1);
  ::testing::internal::CaptureStderr();
  profiler.describe();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("16 events, 84 older ones dropped"));
  const auto trace = json_of(folder / "fit-trace-0.json");
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 84);
  EXPECT_EQ(names(events(trace, "X")), std::vector<std::string>(16, "new"));
  EXPECT_THAT(profiler.summary(), HasSubstr("84 older ones dropped"));
}

TEST(TraceProfiler, AFileHasWhatCameSinceTheOneBefore) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path()});
  EXPECT_THAT(profiler.summary(), HasSubstr("no trace was written yet"));
  profiler.setup("fit", 0);
  record(profiler, "training", 0, 1);
  EXPECT_THAT(names(events(json_of(profiler.write()), "X")), ElementsAre("training"));
  profiler.setup("test", 0);
  record(profiler, "testing", 1, 1);
  EXPECT_THAT(names(events(json_of(profiler.write()), "X")), ElementsAre("testing"));
  EXPECT_EQ(folder.entries(), 2);
}

// More text than the writer holds at once, from several threads, while it is written.
TEST(TraceProfiler, LosesNoEventOfManyThreads) {
  constexpr int kThreads = 4, kEvents = 5000;
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.path()});
  std::latch half(kThreads + 1);
  const auto work = [&] {
    static const Action action("[Strategy]DdpStrategy.backward");
    for (int i = 0; i < kEvents; ++i) {
      if (i == kEvents / 2) half.arrive_and_wait();
      const ProfileScope scope(&profiler, action);
    }
  };
  std::size_t found = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
    half.arrive_and_wait();
    found += events(json_of(profiler.write()), "X").size();
  }
  found += events(json_of(profiler.write()), "X").size();
  EXPECT_EQ(found, std::size_t{kThreads * kEvents});
}

TEST(TraceProfiler, PutsEventsOfOtherLibrariesOnTracksOfTheirOwn) {
  struct WithOthers final : TraceProfiler {
    using TraceProfiler::TraceProfiler;
    std::vector<OtherEvent> take_other_events() override {
      return {{"late", "kernel", "gpu", 300, 5},
              {"inner", "kernel", "gpu", 100, 5},
              {"outer", "kernel", "gpu", 100, 50},
              {"copy \"x\"", "copy", "a copy", 7, 1}};
    }
  };
  const test::TemporaryFolder folder;
  WithOthers profiler({.dirpath = folder.path()});
  profiler.setup("fit", 3);
  record(profiler, "own", 0, 1);
  const auto trace = json_of(profiler.write());
  EXPECT_THAT(names(events(trace, "X")), ElementsAre("own", "copy \"x\"", "outer", "inner", "late"));
  std::map<std::string, int> tracks;
  for (const auto& event : events(trace, "M")) {
    if (event.at("name") == "thread_name") tracks[event.at("args").at("name")] = event.at("tid");
  }
  EXPECT_EQ(tracks.size(), 3U);
  for (const auto& event : events(trace, "X")) {
    const auto name = event.at("name").get<std::string>();
    const auto* const track = name == "own" ? "main" : name.starts_with("copy") ? "a copy" : "gpu";
    EXPECT_EQ(event.at("tid"), tracks.at(track)) << name;
    EXPECT_EQ(event.at("pid"), 3);
  }
  EXPECT_THAT(profiler.summary(), HasSubstr("5 events"));
  EXPECT_EQ(profiler.last_file(), folder / "fit-trace-3.json");
}

TEST(TraceProfiler, AnEmptyTraceIsATrace) {
  const test::TemporaryFolder folder;
  const auto trace = json_of(TraceProfiler({.dirpath = folder / "made"}).write());
  EXPECT_TRUE(events(trace, "X").empty());
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 0);
}

TEST(TraceProfiler, AFileThatCannotBeWrittenIsAWarningOfDescribe) {
  const test::TemporaryFolder folder;
  TraceProfiler profiler({.dirpath = folder.file("taken", "") / "below"});
  EXPECT_THROW(profiler.write(), std::exception);
  EXPECT_THAT(profiler.summary(), HasSubstr("no trace was written yet"));
  ::testing::internal::CaptureStderr();
  profiler.describe();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("warning: the profiler's report is lost"));
}

}  // namespace
}  // namespace lockstep
