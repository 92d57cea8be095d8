#include <lockstep/metrics/aggregation.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep::metrics {
namespace {

using lockstep::test::expect_error;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(MeanTest, WeighsByTheNumberOfSamplesOfEachRank) {
  testing::run_ranks(3, [](const Communicator& comm) {
    Mean mean;
    const double samples[] = {26, 0, 25};
    if (comm.rank() != 1) mean.update(comm.rank() == 0 ? 1.0 : 2.0, samples[comm.rank()]);
    mean.sync(comm);
    EXPECT_EQ(mean.compute().item<double>(), (26 * 1.0 + 25 * 2.0) / 51);
  });
}

TEST(MeanTest, SumsInFloat64) {
  Sum sum;
  const double large = 1 << 24;
  sum.update(large);
  for (int i = 0; i < 3; ++i) sum.update(1);
  EXPECT_EQ(sum.compute().item<double>(), large + 3);
  Mean mean;
  mean.update(torch::tensor({large, 1.0}, torch::kDouble));
  mean.update(torch::ones({1}, torch::kLong));
  EXPECT_EQ(mean.compute().item<double>(), (large + 2) / 3);
}

TEST(MeanTest, BroadcastsWeights) {
  Mean mean;
  mean.update(torch::tensor({{1.0, 2.0}, {3.0, 4.0}}), torch::tensor({1.0, 0.0}));
  EXPECT_EQ(mean.compute().item<double>(), 2);
  expect_error<DataError>([&] { mean.update(torch::ones({2}), torch::ones({3})); },
                          {"Mean: weight", "[3]", "[2]"});
  expect_error<DataError>([&] { mean.update(torch::ones({2}, torch::kComplexFloat)); },
                          {"Mean: value", "real"});
  expect_error<DataError>([&] { mean.update(at::Tensor()); }, {"Mean: value", "undefined"});
  EXPECT_EQ(mean.update_count(), 1);
}

TEST(AggregationTest, HasNeutralValuesWithoutUpdates) {
  EXPECT_TRUE(std::isnan(Mean().compute().item<double>()));
  EXPECT_EQ(Sum().compute().item<double>(), 0);
  EXPECT_EQ(Min().compute().item<double>(), INFINITY);
  EXPECT_EQ(Max().compute().item<double>(), -INFINITY);
  Min min;
  min.update(torch::empty({0}));
  EXPECT_EQ(min.compute().item<double>(), INFINITY);
}

TEST(AggregationTest, TreatsNanAsTold) {
  const auto values = torch::tensor({1.0, kNan, 5.0});
  Mean warning, disabled({.nan_strategy = NanStrategy::kDisable}), replaced({.nan_strategy = 3.0});
  ::testing::internal::CaptureStderr();
  warning.update(values);
  warning.update(values);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("Mean: values that are NaN are left out"), std::string::npos) << said;
  EXPECT_EQ(said.find("NaN"), said.rfind("NaN")) << said;  // once
  EXPECT_EQ(warning.compute().item<double>(), 3);
  disabled.update(values);
  EXPECT_TRUE(std::isnan(disabled.compute().item<double>()));
  replaced.update(values, torch::tensor({1.0, 8.0, kNan}));
  EXPECT_EQ(replaced.compute().item<double>(),
            (1 + 3 + 3) / 3.0);  // their weights become 1, as torchmetrics'
  Max strict({.nan_strategy = NanStrategy::kError});
  expect_error<DataError>([&] { strict.update(values); }, {"Max: value", "NaN"});
  EXPECT_EQ(strict.update_count(), 0);
}

TEST(AggregationTest, KeepsWeightsWhereNanIsNotLookedFor) {  // torchmetrics forgets them there
  Mean mean({.nan_strategy = NanStrategy::kDisable});
  mean.update(torch::tensor({1.0, 5.0}), torch::tensor({3.0, 1.0}));
  EXPECT_EQ(mean.compute().item<double>(), 2);
}

}  // namespace
}  // namespace lockstep::metrics
