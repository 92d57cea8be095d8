#include "report/curve.h"

#include <gmock/gmock.h>

#include <cmath>

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> labels(const Axis& axis, int wanted = 5) {
  std::vector<std::string> labels;
  for (const auto& tick : axis.ticks(wanted)) labels.push_back(tick.label);
  return labels;
}

TEST(Axis, TicksAreRoundNumbers) {
  EXPECT_THAT(labels(Axis::linear(0, 1)), ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels(Axis::linear(-3, 12)), ElementsAre("0", "5", "10"));
  EXPECT_THAT(labels(Axis::linear(0, 50'000)), ElementsAre("0", "10k", "20k", "30k", "40k", "50k"));
  EXPECT_THAT(labels(Axis::linear(0, 3e-5)), ElementsAre("0", "1e-05", "2e-05", "3e-05"));
}

TEST(Axis, CloseTicksAreNotWrittenAlike) {
  EXPECT_THAT(labels(Axis::linear(1'000'000, 1'000'100)),
              ElementsAre("1M", "1.00002M", "1.00004M", "1.00006M", "1.00008M", "1.0001M"));
}

TEST(Axis, PlacesAreParts) {
  const auto axis = Axis::linear(10, 30);
  EXPECT_EQ(axis.place(10), 0);
  EXPECT_EQ(axis.place(25), 0.75);
  for (const auto& tick : axis.ticks(5)) EXPECT_NEAR(axis.place(std::stod(tick.label)), tick.place, 1e-12);
}

TEST(Axis, ARangeThatIsNoneIsWidened) {
  for (const double value : {0.0, 5.0, -1e9, 1e308}) {
    const auto axis = Axis::linear(value, value);
    EXPECT_NEAR(axis.place(value), 0.5, 1e-9) << value;
    EXPECT_FALSE(axis.ticks(5).empty()) << value;
  }
  for (const auto& tick : Axis::linear(-1e308, 1e308).ticks(5)) EXPECT_TRUE(std::isfinite(tick.place));
}

TEST(Axis, ManyPowersOfTenAreLogarithmic) {
  const auto axis = Axis::of_values(1e-4, 100, true);
  EXPECT_TRUE(axis.is_log());
  EXPECT_THAT(labels(axis, 10), ElementsAre("0.0001", "0.001", "0.01", "0.1", "1", "10", "100"));
  EXPECT_NEAR(axis.place(0.1), 0.5, 1e-9);
  EXPECT_FALSE(Axis::of_values(1e-4, 100, false).is_log());
  EXPECT_FALSE(Axis::of_values(-1, 1e6, true).is_log());
  EXPECT_FALSE(Axis::of_values(1, 900, true).is_log());
}

TEST(Axis, ValuesHaveRoomAtBothEnds) {
  const auto axis = Axis::of_values(0, 1, true);
  EXPECT_GT(axis.place(0), 0.01);
  EXPECT_LT(axis.place(1), 0.99);
}

TEST(Axis, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(9999), "9999");
  EXPECT_EQ(short_number(12'500), "12.5k");
  EXPECT_EQ(short_number(-3e6), "-3M");
  EXPECT_EQ(short_number(2.5e9), "2.5G");
  EXPECT_EQ(short_number(0.123456), "0.1235");
}

}  // namespace
}  // namespace lockstep::detail
