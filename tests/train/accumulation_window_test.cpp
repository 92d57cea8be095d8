#include "train/data/accumulation_window.h"

#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

constexpr PartialWindow kPartials[] = {PartialWindow::kAccumulated, PartialWindow::kLightning,
                                       PartialWindow::kCarry};

struct Fit {
  AccumulationSchedule schedule;
  PartialWindow partial;
  bool knows_end;
  std::int64_t epochs;
  std::int64_t batches;

  WindowRule rule() const { return {schedule, partial, knows_end}; }
  std::int64_t size() const { return epochs * batches; }
  MicroBatch at(std::int64_t number) const {
    return {.epoch = number / batches, .index = number % batches, .epoch_batches = batches};
  }
  bool closes_at(std::int64_t number) const {
    return partial != PartialWindow::kCarry && (number + 1) % batches == 0;
  }
};

// All windows of a fit, put together one by one: what each micro-batch is to its window.
std::vector<Window> windows_of(const Fit& fit) {
  std::vector<Window> all;
  for (std::int64_t next = 0; next < fit.size();) {
    const auto wanted = fit.schedule.at(fit.at(next).epoch);
    std::int64_t size = 1;
    while (size < wanted && next + size < fit.size() && !fit.closes_at(next + size - 1)) ++size;
    const bool is_closed = size == wanted || fit.closes_at(next + size - 1);
    const bool is_true_mean = fit.partial == PartialWindow::kAccumulated && fit.knows_end;
    for (std::int64_t i = 0; i < size; ++i)
      all.push_back({.first = i == 0,
                     .last = is_closed && i + 1 == size,
                     .divisor = static_cast<double>(is_true_mean ? size : wanted)});
    next += size;
  }
  return all;
}

void expect_windows(const Fit& fit) {
  const auto expected = windows_of(fit);
  const auto rule = fit.rule();
  auto left = std::ranges::count_if(expected, [](const auto& window) { return window.last; });
  OpenWindow open;
  for (std::int64_t number = 0; number < fit.size(); ++number) {
    const auto at = fit.at(number);
    EXPECT_EQ(rule.steps(open, at, fit.epochs), left) << "from " << number;
    EXPECT_TRUE(rule.can_complete(open, at)) << number;
    const auto place = rule.place(open, at);
    const auto& right = expected[static_cast<std::size_t>(number)];
    EXPECT_EQ(place.first, right.first) << number;
    EXPECT_EQ(place.last, right.last) << number;
    EXPECT_EQ(place.divisor, right.divisor) << number;
    open = rule.behind(open, at);
    left -= right.last ? 1 : 0;
    if (at.index + 1 == fit.batches) open = rule.behind_epoch(open);
  }
}

TEST(AccumulationWindow, IsThatOfWindowsPutTogetherOneByOne) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int seed = 0; seed < 300; ++seed) {
    AccumulationSchedule::Steps steps;
    for (int entries = draw(1, 4); entries > 0; --entries) steps[draw(0, 6)] = draw(1, 7);
    for (const auto partial : kPartials) {
      const Fit fit{.schedule = AccumulationSchedule(steps),
                    .partial = partial,
                    .knows_end = draw(0, 3) > 0,
                    .epochs = draw(1, 8),
                    .batches = draw(1, 9)};
      SCOPED_TRACE(fit.schedule.print() + " x " + std::to_string(fit.batches) + ", seed " +
                   std::to_string(seed));
      expect_windows(fit);
    }
  }
}

TEST(AccumulationWindow, KeepsItsLengthWhateverBecomesOfTheEpoch) {
  const AccumulationSchedule schedule(4);
  const WindowRule rule(schedule, PartialWindow::kAccumulated, true);
  const auto short_one = rule.behind({}, {.index = 4, .epoch_batches = 6});
  EXPECT_EQ(short_one, (OpenWindow{.done = 1, .length = 2}));
  const MicroBatch in_longer_epoch{.index = 5, .epoch_batches = 8};
  EXPECT_TRUE(rule.can_complete(short_one, in_longer_epoch));
  EXPECT_TRUE(rule.place(short_one, in_longer_epoch).last);
  EXPECT_EQ(rule.place({}, {.index = 6, .epoch_batches = 8}).divisor, 2);
  EXPECT_FALSE(rule.can_complete({.done = 1, .length = 4}, {.index = 5, .epoch_batches = 7}));
}

TEST(AccumulationWindow, CountsAsManyEpochsAsThereAreNumbers) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto partial : kPartials) {
    const AccumulationSchedule schedule{{0, 1}, {kMost / 2, 4}};
    const WindowRule rule(schedule, partial, true);
    EXPECT_EQ(rule.steps({}, {.epoch_batches = 8}, kMost), kMost);
    EXPECT_EQ(rule.steps({}, {.epoch_batches = 1}, kMost / 2), kMost / 2);
  }
}

}  // namespace
}  // namespace lockstep::detail
