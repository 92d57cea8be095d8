#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "profilers/call_records.h"

namespace lockstep::detail {
namespace {

using std::chrono::nanoseconds;

TEST(DurationHistogram, IsExactForShortDurations) {
  DurationHistogram calls;
  for (int ns = 1; ns <= 100; ++ns) calls.add(nanoseconds(ns));
  EXPECT_EQ(calls.calls(), 100U);
  EXPECT_DOUBLE_EQ(calls.total().mean_s(), 50.5e-9);
  EXPECT_DOUBLE_EQ(calls.min_s(), 1e-9);
  EXPECT_DOUBLE_EQ(calls.quantile_s(0.5), 50e-9);
  EXPECT_DOUBLE_EQ(calls.quantile_s(0.9), 90e-9);
  EXPECT_DOUBLE_EQ(calls.quantile_s(0.99), 99e-9);
  EXPECT_DOUBLE_EQ(calls.quantile_s(1), 100e-9);
  EXPECT_DOUBLE_EQ(calls.max_s(), 100e-9);
}

TEST(DurationHistogram, IsWithinOnePartIn128) {
  std::mt19937_64 generator(0);
  std::uniform_real_distribution<double> exponent(0, 49.9);
  std::vector<double> seconds;
  DurationHistogram calls;
  for (int i = 0; i < 20000; ++i) {
    const auto ns = static_cast<std::int64_t>(std::exp2(exponent(generator)));
    calls.add(nanoseconds(ns));
    seconds.push_back(1e-9 * static_cast<double>(ns));
  }
  std::ranges::sort(seconds);
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999}) {
    const double exact = seconds[static_cast<std::size_t>(std::ceil(q * 20000)) - 1];
    EXPECT_NEAR(calls.quantile_s(q), exact, exact / 128) << q;
  }
}

TEST(DurationHistogram, NeverLeavesWhatWasMeasured) {
  DurationHistogram calls;
  calls.add(nanoseconds(1'000'003));
  EXPECT_DOUBLE_EQ(calls.quantile_s(0.5), 1'000'003e-9);
  calls.add(nanoseconds::max());
  EXPECT_DOUBLE_EQ(calls.max_s(), 1e-9 * static_cast<double>(nanoseconds::max().count()));
  EXPECT_GE(calls.quantile_s(1), 1e6);
  calls.add(nanoseconds(0));
  EXPECT_DOUBLE_EQ(calls.min_s(), 0);
}

TEST(DurationHistogram, MergesIntoWhatOneWouldHaveSeen) {
  DurationHistogram both, first, second;
  for (int i = 1; i < 1000; ++i) {
    both.add(nanoseconds(i * i));
    (i % 3 == 0 ? first : second).add(nanoseconds(i * i));
  }
  first.merge(second);
  first.merge(DurationHistogram());
  EXPECT_EQ(first.calls(), both.calls());
  EXPECT_EQ(first.min_s(), both.min_s());
  EXPECT_EQ(first.max_s(), both.max_s());
  EXPECT_EQ(first.total().total_s(), both.total().total_s());
  EXPECT_EQ(first.quantile_s(0.5), both.quantile_s(0.5));
}

TEST(ActionTable, KeepsOneObjectPerAction) {
  ActionTable<CallTotal> table;
  std::vector<CallTotal*> made;
  for (std::uint32_t index = 0; index < 1000; ++index) {
    EXPECT_EQ(table.find(index), nullptr);
    made.push_back(table.at(index));
    made.back()->add(nanoseconds(index));
  }
  for (std::uint32_t index = 0; index < 1000; ++index) {
    EXPECT_EQ(table.at(index), made[index]);
    EXPECT_EQ(table.find(index), made[index]);
    EXPECT_EQ(made[index]->calls(), 1U);
    EXPECT_DOUBLE_EQ(made[index]->total_s(), 1e-9 * index);
  }
}

}  // namespace
}  // namespace lockstep::detail
