#include "report/run_files.h"

#include <gmock/gmock.h>
#include <lockstep/profilers/profilers.h>

#include <thread>

#include <lockstep/base/error.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep::detail {
namespace {

using std::chrono::milliseconds;

const Action kStep("run_training_batch");
const Action kReduce("all_reduce", ActionCategory::kCollective);
const Action kData("fetch", ActionCategory::kData);

void record(Profiler& profiler, Action action, int begin_ms, int end_ms) {
  const Profiler::Clock::time_point zero{std::chrono::hours(1)};
  profiler.record(action, zero + milliseconds(begin_ms), zero + milliseconds(end_ms));
}

/// Three steps of 100 ms: 10 of data, 70 of work, 20 for the all-reduce, to which this rank comes `late_ms`
/// late.
void write_rank(const std::filesystem::path& folder, int rank, int late_ms) {
  TraceProfiler profiler({.dirpath = folder});
  profiler.setup("fit", rank);
  for (int step = 0; step < 3; ++step) {
    const int begin = 100 * step;
    record(profiler, kData, begin, begin + 10);
    record(profiler, kStep, begin + 10, begin + 100);
    record(profiler, kReduce, begin + 80 + late_ms, begin + 100);
  }
  std::jthread([&] { record(profiler, Action("broadcast", ActionCategory::kCollective), 0, 500); }).join();
  profiler.write();
}

class TraceTimes : public ::testing::Test {
 protected:
  std::vector<std::filesystem::path> write_two_ranks() {
    write_rank(folder_.path(), 0, 0);
    write_rank(folder_.path(), 1, 4);
    return {folder_ / "fit-trace-0.json", folder_ / "fit-trace-1.json"};
  }

  void expect_two_ranks(const std::vector<StageTimes>& stages) {
    ASSERT_EQ(stages.size(), 1U);
    EXPECT_EQ(stages[0].stage, "fit");
    ASSERT_EQ(stages[0].ranks.size(), 2U);
    const auto& [first, second] = std::tie(stages[0].ranks[0], stages[0].ranks[1]);
    EXPECT_NEAR(first.span_s, 0.3, 1e-6);
    EXPECT_NEAR(first.compute_s, 0.21, 1e-6);
    EXPECT_NEAR(first.communication_s, 0.06, 1e-6);
    EXPECT_NEAR(first.data_s, 0.03, 1e-6);
    EXPECT_NEAR(first.background_communication_s, 0.5, 1e-6);
    EXPECT_NEAR(second.compute_s, 0.222, 1e-6);
    ASSERT_TRUE(stages[0].skew);
    EXPECT_EQ(stages[0].skew->collectives, 4U);
    EXPECT_NEAR(stages[0].skew->median_s, 0.004, 1e-6);
    EXPECT_EQ(stages[0].skew->last_rank, 1);
    EXPECT_EQ(stages[0].skew->last_rank_share, 0.75);
  }

  test::TemporaryFolder folder_;
};

TEST_F(TraceTimes, AddsUpWhatEachRankDid) { expect_two_ranks(read_trace_times(write_two_ranks())); }

TEST_F(TraceTimes, ReadsMergedTraces) {
  const auto files = write_two_ranks();
  const auto merged = folder_ / "fit-trace.json";
  merge_traces(std::vector<lockstep::RankTrace>{{files[0], 0}, {files[1], 1}}, merged);
  expect_two_ranks(read_trace_times(std::vector{merged}));
  expect_two_ranks(read_trace_times(std::vector{files[0], files[1], merged}));  // each rank once
}

TEST_F(TraceTimes, AlignsCollectivesFromTheEnd) {
  write_rank(folder_.path(), 0, 0);
  TraceProfiler profiler({.dirpath = folder_.path()});  // whose first event was dropped
  profiler.setup("fit", 1);
  record(profiler, kReduce, 185, 200);
  record(profiler, kReduce, 285, 300);
  profiler.write();
  const auto stages =
      read_trace_times(std::vector{folder_ / "fit-trace-0.json", folder_ / "fit-trace-1.json"});
  ASSERT_TRUE(stages.at(0).skew);
  EXPECT_EQ(stages[0].skew->collectives, 2U);
  EXPECT_NEAR(stages[0].skew->median_s, 0.005, 1e-6);
}

TEST_F(TraceTimes, ClocksOfTwoMachinesAreNotCompared) {
  const auto trace = [&](const char* name, const char* host) {
    const std::string pid(1, name[4]);
    return folder_.file(name, R"j({"traceEvents":[{"ph":"M","name":"process_name","pid":)j" + pid +
                                  R"j(,"args":{"name":"rank )j" + pid + " (" + host + R"j(, process 7)"}},
{"ph":"X","pid":)j" + pid + R"j(,"tid":1,"ts":5,"dur":2,"name":"all_reduce","cat":"collective"}]})j");
  };
  const std::vector files{trace("fit-0.json", "here"), trace("fit-1.json", "there")};
  EXPECT_FALSE(read_trace_times(files).at(0).skew);
  EXPECT_TRUE(read_trace_times(std::vector{files[0], trace("fit-1.json", "here")}).at(0).skew);
}

TEST_F(TraceTimes, SaysHowManyEventsAreMissing) {
  TraceProfiler profiler({.dirpath = folder_.path(), .events_per_thread = 2});
  profiler.setup("fit", 0);
  for (int i = 0; i < 5; ++i) record(profiler, kStep, i, i + 1);
  const auto file = profiler.write();
  EXPECT_EQ(read_trace_times(std::vector{file}).at(0).ranks.at(0).dropped_events, 3U);
}

TEST_F(TraceTimes, TellTheDevicesEventsFromTheHosts) {
  struct WithDevice final : TraceProfiler {
    using TraceProfiler::TraceProfiler;
    std::vector<OtherEvent> take_other_events() override {
      const std::int64_t hour_ns = 3'600'000'000'000, ms = 1'000'000;
      const auto event = [&](const char* category, const char* track, std::int64_t begin_ms,
                             std::int64_t for_ms) {
        return OtherEvent{"name", category, track, hour_ns + begin_ms * ms, for_ms * ms};
      };
      return {event("libtorch", "LibTorch, thread 1", 0, 900),
              event("runtime", "CUDA's runtime, thread 7", 0, 900),
              event("kernel", "cuda:0, stream 7", 20, 50),
              event("kernel", "cuda:0, stream 7", 80, 10),
              event("copy", "cuda:0, stream 8", 20, 5),
              event("device collective", "cuda:0, stream 9", 90, 30)};
    }
  };
  WithDevice profiler({.dirpath = folder_.path()});
  profiler.setup("fit", 0);
  record(profiler, kStep, 10, 100);
  const auto times = read_trace_times(std::vector{profiler.write()}).at(0).ranks.at(0);
  EXPECT_NEAR(times.span_s, 0.09, 1e-6) << "events of LibTorch are no actions";
  EXPECT_NEAR(times.compute_s, 0.09, 1e-6);
  EXPECT_NEAR(times.background_communication_s, 0, 1e-6);
  EXPECT_NEAR(times.device_span_s, 0.1, 1e-6);
  EXPECT_NEAR(times.device_kernels_s, 0.06, 1e-6);
  EXPECT_NEAR(times.device_copies_s, 0.005, 1e-6);
  EXPECT_NEAR(times.device_collectives_s, 0.03, 1e-6);
}

TEST_F(TraceTimes, RefusesWhatIsNoTrace) {
  for (const char* text :
       {"", "{", R"({"traceEvents":[{"ph":7}]})", R"({"traceEvents":[{"ph":"X","pid":"a"}]})",
        R"({"traceEvents":[],"otherData":[]})", "[]"}) {
    const std::vector files{folder_.file("fit-trace-0.json", text)};
    test::expect_error<DataError>([&] { (void)read_trace_times(files); },
                                  {"fit-trace-0.json", "is no trace"});
  }
}

TEST_F(TraceTimes, AreToldByTheirBegin) {
  write_rank(folder_.path(), 0, 0);
  EXPECT_TRUE(is_trace(folder_ / "fit-trace-0.json"));
  EXPECT_FALSE(is_trace(folder_.file("summary.json", "{\"status\": \"success\"}")));
  EXPECT_FALSE(is_trace(folder_.file("empty.json", "")));
  EXPECT_FALSE(is_trace(folder_ / "none.json"));
}

}  // namespace
}  // namespace lockstep::detail
