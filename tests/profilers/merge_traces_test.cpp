#include <gmock/gmock.h>
#include <lockstep/profilers/profilers.h>

#include <map>

#include <lockstep/base/error.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/json_file.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using test::json_of;

std::filesystem::path trace_of(const std::filesystem::path& folder, int rank, std::int64_t begin_ns,
                               std::size_t capacity = 64) {
  TraceProfiler profiler({.dirpath = folder, .events_per_thread = capacity});
  profiler.setup("fit", rank);
  const Profiler::Clock::time_point begin{nanoseconds(begin_ns)};
  profiler.record(Action("merge \"this\""), begin, begin + nanoseconds(7));
  profiler.record(Action("merge"), begin, begin + nanoseconds(5));
  profiler.record(Action("merge"), begin, begin + nanoseconds(5));
  return profiler.write();
}

TEST(MergeTraces, PutsRanksOnOneClock) {
  const test::TemporaryFolder folder;
  const std::vector<RankTrace> ranks = {
      {trace_of(folder.path(), 0, 1'234'567'890'123'456), 0},
      {trace_of(folder.path(), 1, 9'000'000'000'001), 1, nanoseconds(1'225'567'890'123'456)}};
  merge_traces(ranks, folder / "all.json");
  std::map<int, std::vector<json>> calls;
  const auto trace = json_of(folder / "all.json");
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") calls[event.at("pid")].push_back(event);
  }
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].size(), 3U);
  EXPECT_EQ(calls[1].size(), 3U);
  EXPECT_EQ(calls[1][0].at("name"), "merge \"this\"");
  EXPECT_EQ(calls[1][0].at("dur"), 0.007);
  const auto text = test::content(folder / "all.json");
  EXPECT_THAT(text, ::testing::HasSubstr("\"ts\":1234567890123.456,"));
  EXPECT_THAT(text, ::testing::HasSubstr("\"ts\":1234567890123.457,"));
}

TEST(MergeTraces, KeepsNamesAndAddsUpWhatWasDropped) {
  const test::TemporaryFolder folder;
  const std::vector<RankTrace> ranks = {{trace_of(folder.path(), 0, 10, 2), 0},
                                        {trace_of(folder.path(), 1, 10, 2), 1}};
  merge_traces(ranks, folder / "all.json");
  const auto trace = json_of(folder / "all.json");
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), 2);
  EXPECT_EQ(trace.at("otherData").at("ranks"), 2);
  int processes = 0;
  for (const auto& event : trace.at("traceEvents")) processes += event.at("name") == "process_name" ? 1 : 0;
  EXPECT_EQ(processes, 2);
}

TEST(MergeTraces, TakesTracesOfOtherPrograms) {
  const test::TemporaryFolder folder;
  const auto foreign = folder.file("foreign.json", R"({"schemaVersion": 1, "traceEvents": [
      {"ph": "X", "pid": 4711, "tid": "x", "ts": 5, "dur": 2, "name": "a", "args": {"shape": {"rows": [1, {}]}}},
      {"ph": "M", "pid": 4711, "name": "process_name", "args": {"name": "python"}}]})");
  merge_traces(std::vector<RankTrace>{{foreign, 3, nanoseconds(-1)}}, folder / "all.json");
  const auto events = json_of(folder / "all.json").at("traceEvents");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].at("ts"), 4.999);
  EXPECT_EQ(events[0].at("pid"), 3);
  EXPECT_EQ(events[0].at("args"), json::parse(R"({"shape": {"rows": [1, {}]}})"));
  EXPECT_EQ(events[1].at("pid"), 3);
}

TEST(MergeTraces, RefusesWhatIsNoTrace) {
  const test::TemporaryFolder folder;
  const auto output = folder / "all.json";
  const auto good = trace_of(folder.path(), 0, 10);
  for (const char* text : {"", "[]", "3", "{}", "{\"traceEvents\":[", R"({"traceEvents":[{"ts":"x"}]})",
                           R"({"traceEvents":[{"ts":1e300}]})"}) {
    const std::vector<RankTrace> ranks = {{good, 0}, {folder.file("bad.json", text), 1}};
    test::expect_error<DataError>([&] { merge_traces(ranks, output); }, {"bad.json", "is no trace"});
    EXPECT_FALSE(std::filesystem::exists(output)) << text;
  }
  test::expect_error<IoError>(
      [&] {
        merge_traces(std::vector<RankTrace>{{folder / "absent.json", 0}}, output);
      },
      {"absent.json"});
}

}  // namespace
}  // namespace lockstep
