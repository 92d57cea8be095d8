#include "report/curve.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;

std::vector<CurvePoint> wave(std::size_t count) {
  std::vector<CurvePoint> points;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i);
    points.push_back({.step = x, .value = std::sin(x / 1000)});
  }
  return points;
}

std::vector<double> values(std::span<const CurvePoint> points) {
  std::vector<double> values;
  for (const auto& point : points) values.push_back(point.value);
  return values;
}

TEST(Curve, KeepsTheLeastAndTheLargestValueOfEachBucket) {
  auto points = wave(1'000'000);
  points[123'456].value = 7;
  points[654'321].value = -7;
  const auto kept = reduced(points, 300);
  EXPECT_LE(kept.size(), 602U);
  EXPECT_GE(kept.size(), 300U);
  EXPECT_EQ(kept.front().step, 0);
  EXPECT_EQ(kept.back().step, 999'999);
  EXPECT_EQ(std::ranges::count(kept, 123'456, &CurvePoint::step), 1);
  EXPECT_EQ(std::ranges::count(kept, 654'321, &CurvePoint::step), 1);
  EXPECT_TRUE(std::ranges::is_sorted(kept, {}, &CurvePoint::step));
  for (const auto& point : kept) EXPECT_EQ(point.value, points[static_cast<std::size_t>(point.step)].value);
}

TEST(Curve, FewPointsStayAsTheyAre) {
  const auto points = wave(600);
  EXPECT_EQ(values(reduced(points, 300)), values(points));
  EXPECT_TRUE(reduced({}, 300).empty());
}

TEST(Curve, ManyPointsAtOneStepAreReducedToo) {
  std::vector<CurvePoint> points(10'000);
  for (std::size_t i = 0; i < points.size(); ++i)
    points[i] = {.step = 5, .value = static_cast<double>(i % 100)};
  EXPECT_THAT(values(reduced(points, 10)), ElementsAre(0, 0, 99, 99));
}

TEST(Curve, WhatIsNotFiniteIsCountedAndLeftOut) {
  const MetricCurve curve{.name = "loss",
                          .points = {{.step = 1, .value = 2},
                                     {.step = 3, .value = std::numeric_limits<double>::quiet_NaN()},
                                     {.step = 5, .value = -std::numeric_limits<double>::infinity()},
                                     {.step = 7, .value = 4}}};
  const auto [points, missing] = line_of(curve);
  EXPECT_THAT(values(points), ElementsAre(2, 4));
  EXPECT_EQ(missing.count, 2U);
  EXPECT_EQ(missing.first_step, 3);
}

TEST(Curve, SmoothLinesStartAtTheFirstValueAndFollow) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < 200; ++i) points.push_back({.step = 1.0 * i, .value = i < 100 ? 10.0 : 20.0});
  const auto smooth = smoothed(points);
  EXPECT_DOUBLE_EQ(smooth[0].value, 10);
  EXPECT_DOUBLE_EQ(smooth[99].value, 10);
  EXPECT_GT(smooth[103].value, 12);
  EXPECT_LT(smooth[103].value, 18);
  EXPECT_NEAR(smooth[199].value, 20, 1e-6);
}

MetricCurve epochs_of_ten(std::int64_t steps) {
  MetricCurve curve{.name = "loss"};
  for (std::int64_t step = 0; step < steps; ++step)
    curve.points.push_back({.step = step, .epoch = step / 10});
  return curve;
}

TEST(Curve, EpochsAreFoundFromSteps) {
  const std::vector<MetricCurve> curves{epochs_of_ten(30)};
  const EpochScale epochs(curves);
  EXPECT_DOUBLE_EQ(epochs.epochs_at(9), 1);
  EXPECT_DOUBLE_EQ(epochs.epochs_at(14), 1.5);
  EXPECT_DOUBLE_EQ(epochs.epochs_at(29), 3);
}

TEST(Curve, AnEpochThatWasLeftEarlyIsNotWhole) {
  const std::vector<MetricCurve> curves{epochs_of_ten(25)};
  EXPECT_DOUBLE_EQ(EpochScale(curves).epochs_at(24), 2.5);
}

TEST(Curve, EpochsOfAFewLoggedStepsAreWhole) {  // a value at the end of each epoch
  const std::vector<MetricCurve> curves{
      {.name = "val",
       .points = {{.step = 22, .epoch = 0}, {.step = 45, .epoch = 1}, {.step = 68, .epoch = 2}}}};
  const EpochScale epochs(curves);
  EXPECT_DOUBLE_EQ(epochs.epochs_at(22), 1);
  EXPECT_DOUBLE_EQ(epochs.epochs_at(68), 3);
}

TEST(Curve, NothingLoggedHasNoEpochs) { EXPECT_EQ(EpochScale({}).epochs_at(17), 0); }

TEST(Curve, LossesComeFirst) {
  const std::vector<RunRecord> runs{{.folder = "a", .curves = {{.name = "acc"}, {.name = "val_loss"}}},
                                    {.folder = "b", .curves = {{.name = "lr-SGD"}, {.name = "train_loss"}}}};
  EXPECT_THAT(curve_names(compared(runs)), ElementsAre("train_loss", "val_loss", "acc", "lr-SGD"));
}

}  // namespace
}  // namespace lockstep::detail
