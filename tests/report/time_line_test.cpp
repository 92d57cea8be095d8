#include "report/run_files.h"

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

TEST(TimeLine, PhasesComeFromCategories) {
  EXPECT_EQ(phase_of("collective", "all_reduce"), Phase::kCommunication);
  EXPECT_EQ(phase_of("data", "fetch"), Phase::kData);
  EXPECT_EQ(phase_of("checkpoint", "save"), Phase::kCheckpoint);
  EXPECT_EQ(phase_of("hook", "[Strategy]DdpStrategy.backward"), Phase::kCompute);
  EXPECT_EQ(phase_of("hook", "[_TrainingEpochLoop].train_dataloader_next"), Phase::kData);
  EXPECT_EQ(phase_of("hook", "[_EvaluationLoop].val_next"), Phase::kData);
}

TEST(TimeLine, ACallCountsWithoutTheCallsWithinIt) {
  // An epoch of 100 us: 10 of data, a step of 60 with an all-reduce of 20 that copies for 5, then a gap
  // of 30.
  const auto times = phase_times({{0, 10, Phase::kData},
                                  {10, 70, Phase::kCompute},
                                  {40, 60, Phase::kCommunication},
                                  {41, 46, Phase::kCompute},
                                  {100, 110, Phase::kCheckpoint}});
  EXPECT_DOUBLE_EQ(times.span_us, 110);
  EXPECT_DOUBLE_EQ(times[Phase::kData], 10);
  EXPECT_DOUBLE_EQ(times[Phase::kCompute], 40);
  EXPECT_DOUBLE_EQ(times[Phase::kCommunication], 20);
  EXPECT_DOUBLE_EQ(times[Phase::kCheckpoint], 10);
}

TEST(TimeLine, CallsThatBeginTogetherNestByTheirLength) {
  const auto times = phase_times({{0, 4, Phase::kData}, {0, 10, Phase::kCompute}});
  EXPECT_DOUBLE_EQ(times[Phase::kData], 4);
  EXPECT_DOUBLE_EQ(times[Phase::kCompute], 6);
}

TEST(TimeLine, CallsThatOverlapAreNotCountedTwice) {  // another program's trace
  const auto times = phase_times({{0, 10, Phase::kCompute}, {5, 20, Phase::kData}});
  EXPECT_DOUBLE_EQ(times[Phase::kCompute], 5);
  EXPECT_DOUBLE_EQ(times[Phase::kData], 5);
}

TEST(TimeLine, NoCallsTakeNoTime) { EXPECT_EQ(phase_times({}).span_us, 0); }

}  // namespace
}  // namespace lockstep::detail
