// SpikeDetector: Lightning's cases, on one rank and on two.
#include <lockstep/fabric/spike_detector.h>

#include <cmath>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <lockstep/testing/run_ranks.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kBatches = 9;
constexpr int kSpikeBatch = 4;

std::vector<int> batches_in(const std::filesystem::path& file) {
  return nlohmann::json::parse(std::ifstream(file)).get<std::vector<int>>();
}

struct Case {
  int ranks;
  int spike_rank;
  double loss;
  bool finite_only;
  bool should_raise;
};

// Losses 1, 1/2, 1/3, ... but for one of one rank. Returns the batch in which it was said to be a spike.
std::int64_t spike_of(SpikeDetector& detector, const Case& one, const Communicator& comm) {
  for (int batch = 0; batch < kBatches; ++batch) {
    const bool is_odd = comm.rank() == one.spike_rank && batch == kSpikeBatch;
    try {
      detector.observe(is_odd ? one.loss : 1.0 / (batch + 1), batch, comm);
    } catch (const TrainingSpike& spike) {
      return spike.batch_idx();
    }
  }
  return -1;
}

class SpikeDetectorRanks : public ::testing::TestWithParam<Case> {};

TEST_P(SpikeDetectorRanks, AgreeOnSpikes) {
  const auto one = GetParam();
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "made" / "here";
  testing::run_ranks(one.ranks, [one, path](const Communicator& comm) {
    SpikeDetector detector({.exclude_batches_path = path, .finite_only = one.finite_only});
    EXPECT_EQ(spike_of(detector, one, comm), one.should_raise ? kSpikeBatch : -1);
  });
  EXPECT_EQ(std::filesystem::exists(path / "skip_batches.json"), one.should_raise);
  if (!one.should_raise) return;
  EXPECT_THAT(batches_in(path / "skip_batches.json"), ElementsAre(kSpikeBatch - 1, kSpikeBatch));
}

std::vector<Case> lightnings_cases() {
  std::vector<Case> cases;
  for (const auto& [ranks, rank] : {std::pair(1, 0), std::pair(2, 0), std::pair(2, 1)})
    for (const double loss : {3.0, kInfinity, -kInfinity, std::nan("")})
      for (const bool finite_only : {true, false})
        cases.push_back({ranks, rank, loss, finite_only, finite_only || loss == 3 || loss == kInfinity});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ranks, SpikeDetectorRanks, ::testing::ValuesIn(lightnings_cases()));

TEST(SpikeDetector, TakesBothTolerancesAsConditions) {
  const auto is_spike = [](SpikeDetectionOptions options, double loss) {
    const test::TemporaryFolder folder;
    options.exclude_batches_path = folder.path() / "bad.json";
    SpikeDetector detector(options);
    detector.observe(1.0, 0, {});
    try {
      detector.observe(loss, 1, {});
    } catch (const TrainingSpike&) {
      return std::filesystem::exists(folder.path() / "bad.json");
    }
    return false;
  };
  EXPECT_FALSE(is_spike({}, 2.9));
  EXPECT_TRUE(is_spike({}, 3.0));
  EXPECT_FALSE(is_spike({.atol = 5.0}, 4.0));
  EXPECT_TRUE(is_spike({.atol = 0.5, .rtol = {}}, 1.5));
  EXPECT_FALSE(is_spike({.warmup = 2}, 100));
  EXPECT_FALSE(is_spike({.mode = MonitorMode::kMax}, 100));
  EXPECT_TRUE(is_spike({.mode = MonitorMode::kMax}, -100));
}

TEST(SpikeDetector, GoesOnFromItsState) {
  const test::TemporaryFolder folder;
  const SpikeDetectionOptions options{.window = 2, .exclude_batches_path = folder.path()};
  SpikeDetector before(options);
  for (int batch = 0; batch < 3; ++batch) before.observe(1.0 + batch, batch, {});
  EXPECT_THROW(before.observe(100, 3, {}), TrainingSpike);
  SpikeDetector after(options);
  after.load_state(before.state());
  EXPECT_NO_THROW(after.observe(7.4, 0, {}));  // 4.9 from the mean of 2 and 3, which allows 5
  EXPECT_THROW(after.observe(50, 5, {}), TrainingSpike);
  EXPECT_THAT(after.bad_batches(), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(batches_in(after.path()), ElementsAre(2, 3, 4, 5));
}

TEST(SpikeDetector, NamesOptionsThatAreOutOfRange) {
  test::expect_error<ConfigError>([] { SpikeDetector detector({.window = 0}); }, {"window"});
  test::expect_error<ConfigError>([] { SpikeDetector detector({.warmup = -1}); }, {"warmup", "-1"});
}

}  // namespace
}  // namespace lockstep
