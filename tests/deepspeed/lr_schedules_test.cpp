// Learning rates beside those that DeepSpeed's own schedulers set.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/deepspeed/lr_schedules.h>

#include "support/expect_error.h"

namespace lockstep::deepspeed {
namespace {

using test::expect_error;

struct Row {
  const char* name;
  std::int64_t t;
  double lr;
  double beta1, beta2;
};

const Row kRows[] = {
#include "deepspeed/deepspeed_rates.inc"
};

const std::map<std::string, Scheduler>& cases() {
  constexpr auto linear = WarmupType::kLinear;
  const OneCycle cycle{.cycle_min_lr = {1e-3}, .cycle_max_lr = {1e-2}};
  const auto cycle_of = [&](auto set) {
    auto copy = cycle;
    set(copy);
    return copy;
  };
  static const std::map<std::string, Scheduler> cases{
      {"warmup_log", WarmupLR{.warmup_max_lr = PerGroup{0.01}, .warmup_num_steps = 10}},
      {"warmup_linear",
       WarmupLR{.warmup_min_lr = PerGroup{1e-4}, .warmup_num_steps = 10, .warmup_type = linear}},
      {"warmup_one_step", WarmupLR{.warmup_num_steps = 1}},
      {"decay_log",
       WarmupDecayLR{.total_num_steps = {30}, .warmup_min_lr = PerGroup{1e-5}, .warmup_num_steps = 10}},
      {"decay_linear", WarmupDecayLR{.total_num_steps = {30},
                                     .warmup_max_lr = PerGroup{0.02},
                                     .warmup_num_steps = 10,
                                     .warmup_type = linear}},
      {"decay_too_short", WarmupDecayLR{.total_num_steps = {5}, .warmup_num_steps = 10}},
      {"cosine", WarmupCosineLR{.total_num_steps = {30}, .warmup_num_steps = 10}},
      {"cosine_ratios", WarmupCosineLR{.total_num_steps = {30},
                                       .warmup_min_ratio = 0.1,
                                       .warmup_num_steps = 8,
                                       .cos_min_ratio = 0.05,
                                       .warmup_type = linear}},
      {"cycle", cycle_of([](OneCycle& c) {
         c.cycle_first_step_size = 10;
         c.decay_lr_rate = 0.5;
         c.decay_step_size = 3;
         c.decay_mom_rate = 0.01;
       })},
      {"cycle_uneven", cycle_of([](OneCycle& c) {
         c.cycle_first_step_size = 7;
         c.cycle_second_step_size = 18;
         c.cycle_min_mom = {0.85};
         c.cycle_max_mom = {0.95};
       })},
      {"cycle_stairs", cycle_of([](OneCycle& c) {
         c.cycle_first_step_size = 9;
         c.cycle_second_step_size = 16;
         c.cycle_first_stair_count = 3;
         c.cycle_second_stair_count = 4;
       })},
      {"cycle_one_way", cycle_of([](OneCycle& c) {
         c.cycle_first_step_size = 10;
         c.cycle_second_step_size = 0;
       })},
      {"range", LRRangeTest{.lr_range_test_min_lr = {1e-4}, .lr_range_test_step_size = 7}},
      {"range_stairs", LRRangeTest{.lr_range_test_min_lr = {1e-4},
                                   .lr_range_test_step_size = 7,
                                   .lr_range_test_step_rate = 2.5,
                                   .lr_range_test_staircase = true}},
  };
  return cases;
}

TEST(LrSchedules, AreDeepSpeedsToTheLastDigits) {
  constexpr double kRounding = 1e-15;
  std::map<std::string, int> rows;
  for (const auto& row : kRows) {
    SCOPED_TRACE(std::string(row.name) + " at t = " + std::to_string(row.t));
    const auto& schedule = cases().at(row.name);
    EXPECT_NEAR(learning_rate(schedule, row.t, {.lr = 3e-3}), row.lr, row.lr * kRounding);
    if (const auto* cycle = std::get_if<OneCycle>(&schedule)) {
      const auto betas = cycled_betas(*cycle, row.t, {});
      ASSERT_TRUE(betas);
      EXPECT_NEAR(betas->beta1, row.beta1, kRounding);
      EXPECT_EQ(betas->beta2, row.beta2);
    }
    ++rows[row.name];
  }
  EXPECT_EQ(rows.size(), cases().size());
  for (const auto& [name, count] : rows) EXPECT_EQ(count, 20) << name;
}

TEST(LrSchedules, AWarmUpRunsItsFirstTwoStepsAtTheMinimum) {
  const WarmupLR schedule{
      .warmup_min_lr = PerGroup{1e-5}, .warmup_max_lr = PerGroup{1e-3}, .warmup_num_steps = 4};
  EXPECT_EQ(learning_rate(schedule, -1, {}), 1e-5);
  EXPECT_EQ(learning_rate(schedule, 0, {}), 1e-5);
  EXPECT_NEAR(learning_rate(schedule, 1, {}), 1e-5 + (1e-3 - 1e-5) * 0.5, 1e-18);  // ln 2 / ln 4
  EXPECT_EQ(learning_rate(schedule, 4, {}), 1e-3);
}

TEST(LrSchedules, WarmupCosineStartsAtZeroWhateverItsMinimum) {
  const WarmupCosineLR schedule{.total_num_steps = {100}, .warmup_min_ratio = 0.5, .warmup_num_steps = 10};
  EXPECT_EQ(learning_rate(schedule, -1, {.lr = 1.0}), 0.0);
  EXPECT_EQ(learning_rate(schedule, 0, {.lr = 1.0}), 0.5);
}

TEST(LrSchedules, WarmupDecayEndsAtItsMinimumNotAtZero) {
  const WarmupDecayLR schedule{
      .total_num_steps = {20}, .warmup_min_lr = PerGroup{1e-4}, .warmup_num_steps = 4};
  EXPECT_EQ(learning_rate(schedule, 20, {}), 1e-4);
  EXPECT_EQ(learning_rate(schedule, 1000, {}), 1e-4);
}

TEST(LrSchedules, CyclesStartWithTheSmallerMomentum) {
  const OneCycle schedule{.cycle_min_lr = {0.1}, .cycle_max_lr = {0.2}};
  EXPECT_EQ(cycled_betas(schedule, -1, {}), (Betas{0.8, 0.99}));
  auto without = schedule;
  without.cycle_momentum = false;
  EXPECT_FALSE(cycled_betas(without, 0, {}));
}

TEST(LrSchedules, GiveGroupsTheirOwnRates) {
  const WarmupLR schedule{.warmup_max_lr = PerGroup{0.1, 0.2}, .warmup_num_steps = 2};
  EXPECT_EQ(learning_rate(schedule, 9, {.index = 1}), 0.2);
  expect_error<ConfigError>([&] { (void)learning_rate(schedule, 9, {.index = 2}); },
                            {"scheduler.params.warmup_max_lr", "one for each parameter group", "2 numbers"});
  EXPECT_EQ(learning_rate(WarmupLR{.warmup_num_steps = 2}, 9, {.lr = 0.5}), 0.5)
      << "none given: the group's own";
  EXPECT_EQ(learning_rate(Scheduler(), 9, {.lr = 0.5}), 0.5);
}

TEST(LrSchedules, RefuseToGuessTheLengthOfTheRun) {
  WarmupDecayLR schedule;
  expect_error<ConfigError>([&] { (void)learning_rate(schedule, 0, {}); }, {"total_num_steps", "got none"});
  schedule.total_num_steps.is_auto = true;
  expect_error<ConfigError>([&] { (void)learning_rate(schedule, 0, {}); }, {"auto", "nobody has filled"});
}

}  // namespace
}  // namespace lockstep::deepspeed
