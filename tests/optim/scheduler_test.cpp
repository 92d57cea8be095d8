#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/optim/scheduler.h>
#include <lockstep/torch.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "optim/support.h"
#include "support/paths.h"

namespace lockstep {
namespace {

using optim_test::error_of;

// Two groups with the base rates of tests/data/make_golden_schedulers.py.
std::unique_ptr<Optimizer> two_groups(bool adamw = false) {
  const std::vector<NamedParameter> parameters = {{"a", torch::zeros({1})}, {"b", torch::zeros({1})}};
  const std::vector<ParameterGroup> groups = {{.pattern = "a"}, {.pattern = "b", .lr = 0.02}};
  if (adamw) return OptimizerFactory(AdamW{.lr = 0.1, .groups = groups}).create(parameters);
  return OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9, .groups = groups}).create(parameters);
}

const std::map<std::string, SchedulerOptions>& cases() {
  static const std::map<std::string, SchedulerOptions> kCases = {
      {"constant", ConstantLR{}},
      {"linear", LinearLR{}},
      {"linear_down", LinearLR{.start_factor = 1.0, .end_factor = 0.25, .total_iters = 30}},
      {"exponential", ExponentialLR{.gamma = 0.93}},
      {"step", StepLR{.step_size = 7, .gamma = 0.5}},
      {"multi_step", MultiStepLR{.milestones = {3, 11, 11, 40}}},
      {"cosine", CosineAnnealingLR{.T_max = 25, .eta_min = 0.001}},
      {"lambda", LambdaLR{[](std::int64_t k) { return std::pow(0.95, k) / (1.0 + double(k)); }}},
      {"one_cycle", OneCycleLR{.max_lr = 0.5, .total_steps = 60}},
      {"one_cycle_linear", OneCycleLR{.max_lr = 0.5,
                                      .total_steps = 60,
                                      .pct_start = 0.4,
                                      .anneal_strategy = "linear",
                                      .base_momentum = 0.8,
                                      .max_momentum = 0.9,
                                      .div_factor = 10.0,
                                      .final_div_factor = 100.0}},
      {"one_cycle_three_phase", OneCycleLR{.max_lr = 0.5, .total_steps = 60, .three_phase = true}},
      {"one_cycle_fixed_momentum",
       OneCycleLR{.max_lr = 0.5, .total_steps = 60, .pct_start = 0.0, .cycle_momentum = false}},
      {"sequential", SequentialLR{.schedulers = {LinearLR{.start_factor = 0.1, .total_iters = 10},
                                                 CosineAnnealingLR{.T_max = 77}},
                                  .milestones = {10}}},
      {"sequential_three", SequentialLR{.schedulers = {ConstantLR{.factor = 0.5, .total_iters = 3},
                                                       ExponentialLR{.gamma = 0.9}, StepLR{.step_size = 4}},
                                        .milestones = {5, 20}}},
      {"plateau", ReduceLROnPlateau{}},
      {"plateau_cooldown", ReduceLROnPlateau{.factor = 0.5, .patience = 3, .cooldown = 4, .min_lr = 0.004}},
      {"plateau_max_abs",
       ReduceLROnPlateau{
           .mode = "max", .factor = 0.8, .patience = 2, .threshold = 0.02, .threshold_mode = "abs"}},
      {"swa", SWALR{.swa_lr = {0.05}}},
      {"swa_by_group", SWALR{.swa_lr = {0.03, 0.2}, .anneal_epochs = 7, .anneal_strategy = "linear"}},
      {"swa_at_once", SWALR{.swa_lr = {0.05}, .anneal_epochs = 0}},
  };
  return kCases;
}

nlohmann::json golden() {
  std::ifstream file(test::in_repository("tests/data/golden_schedulers.json"));
  auto curves = nlohmann::json::parse(file);
  curves.erase("about");
  return curves;
}

double momentum_of(const Optimizer::Group& group) {
  return group.betas ? (*group.betas)[0] : *group.momentum;
}

void step_with(Scheduler& scheduler, const nlohmann::json& curve, std::size_t k) {
  if (scheduler.needs_metric()) {
    scheduler.step(curve["metrics"][k].get<double>());
  } else {
    scheduler.step();
  }
}

TEST(Scheduler, FollowsTorchInEveryGroup) {
  const auto curves = golden();
  ASSERT_EQ(curves.size(), cases().size());
  for (const auto& [name, curve] : curves.items()) {
    auto optimizer = two_groups(/*adamw=*/name == "one_cycle_three_phase");
    Scheduler scheduler(cases().at(name), *optimizer);
    for (std::size_t k = 0; k < curve["lrs"].size(); ++k) {
      for (const std::size_t group : {0, 1}) {
        const auto expected = curve["lrs"][k][group].get<double>();
        ASSERT_NEAR(optimizer->groups()[group].lr, expected, 1e-9 * expected + 1e-17) << name << " k=" << k;
        if (!curve.contains("momentum")) continue;
        ASSERT_NEAR(momentum_of(optimizer->groups()[group]), curve["momentum"][k].get<double>(), 1e-12)
            << name << " k=" << k;
      }
      ASSERT_EQ(scheduler.last_lr()[1], optimizer->groups()[1].lr);
      ASSERT_EQ(scheduler.last_step(), static_cast<std::int64_t>(k));
      if (k + 1 < curve["lrs"].size()) step_with(scheduler, curve, k);
    }
  }
}

TEST(Scheduler, ResumesExactlyFromItsState) {
  const auto curves = golden();
  for (const auto& [name, curve] : curves.items()) {
    auto through = two_groups(), before = two_groups(), after = two_groups();
    Scheduler whole(cases().at(name), *through), first(cases().at(name), *before);
    for (std::size_t k = 0; k < 17; ++k) step_with(whole, curve, k), step_with(first, curve, k);
    Scheduler second(cases().at(name), *after);
    load_state(*after, state_of(*before));
    second.load_state(first.state());
    EXPECT_EQ(after->groups()[0].lr, through->groups()[0].lr) << name;
    for (std::size_t k = 17; k < 50; ++k) {
      step_with(whole, curve, k);
      step_with(second, curve, k);
      ASSERT_EQ(second.last_lr(), whole.last_lr()) << name << " k=" << k;
      ASSERT_EQ(after->groups()[0].lr, through->groups()[0].lr) << name << " k=" << k;
    }
  }
}

std::vector<double> curve_of(const SchedulerOptions& options, int steps) {
  auto optimizer = two_groups();
  Scheduler scheduler(options, *optimizer);
  std::vector<double> lrs;
  for (int k = 0; k < steps; ++k, scheduler.step()) lrs.push_back(scheduler.last_lr()[0]);
  return lrs;
}

// Values of DeepSpeed 0.19's WarmupLR as an engine uses it: both first steps have the least rate.
TEST(Scheduler, FollowsDeepSpeedWarmup) {
  const auto log = curve_of(WarmupLR{.max_lr = 1e-3, .num_steps = 10}, 14);
  EXPECT_EQ(log[0], 0.0);
  EXPECT_EQ(log[1], 0.0);
  EXPECT_NEAR(log[2], 0.00030102999566398113, 1e-15);
  EXPECT_NEAR(log[9], 0.0009542425094393248, 1e-15);
  EXPECT_NEAR(log[10], 0.001, 1e-15);
  EXPECT_EQ(log[13], 0.001);
  const auto linear =
      curve_of(WarmupLR{.min_lr = 0.1, .max_lr = 0.5, .num_steps = 4, .warmup_type = "linear"}, 7);
  const double expected_linear[] = {0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5};
  for (int k = 0; k < 7; ++k) EXPECT_NEAR(linear[k], expected_linear[k], 1e-15) << k;
  const auto decay = curve_of(
      WarmupDecayLR{.max_lr = 1.0, .num_steps = 2, .total_num_steps = 6, .warmup_type = "linear"}, 10);
  const double expected_decay[] = {0.0, 0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0};
  for (int k = 0; k < 10; ++k) EXPECT_NEAR(decay[k], expected_decay[k], 1e-15) << k;
}

TEST(Scheduler, StopsAtTheEndOfOneCycle) {
  auto optimizer = two_groups();
  Scheduler scheduler(OneCycleLR{.max_lr = 0.5, .total_steps = 4, .anneal_strategy = "linear"}, *optimizer);
  for (int k = 0; k < 4; ++k) scheduler.step();
  EXPECT_NEAR(scheduler.last_lr()[0], 0.5 / 25 / 1e4, 1e-15);
  EXPECT_EQ(error_of<ConfigError>([&] { scheduler.step(); }),
            "[optim] OneCycleLR is over; expected at most total_steps = 4 steps; got 5; give total_steps the "
            "number of "
            "optimizer steps of the whole run");
  EXPECT_EQ(scheduler.last_step(), 4);
}

TEST(Scheduler, RefusesMetricsWhereNoneIsWatchedAndTheReverse) {
  auto optimizer = two_groups();
  Scheduler plain(StepLR{.step_size = 1}, *optimizer), plateau(ReduceLROnPlateau{}, *optimizer);
  EXPECT_EQ(error_of<ConfigError>([&] { plain.step(0.5); }),
            "[optim] the scheduler watches no metric; expected step() without a value; got a value");
  EXPECT_EQ(error_of<ConfigError>([&] { plateau.step(); }),
            "[optim] ReduceLROnPlateau cannot step; expected the value of the metric it watches; got none");
}

TEST(Scheduler, RefusesToCycleMomentumThatIsNotThere) {
  struct Plain final : Optimizer {
    Plain() : Optimizer({{"p", torch::zeros({1})}}, {{.pattern = "", .parameters = {"p"}, .lr = 1.0}}) {}
    void step(double) override {}
    std::string_view name() const override { return "Plain"; }
    std::vector<OptimizerState> state() override { return {}; }
  } optimizer;
  const OneCycleLR cycle{.max_lr = 0.5, .total_steps = 4};
  EXPECT_EQ(error_of<ConfigError>([&] { Scheduler(cycle, optimizer); }),
            "[optim] OneCycleLR.cycle_momentum cannot be followed; expected an optimizer with momentum or "
            "betas; got "
            "Plain; set cycle_momentum = false");
}

TEST(Scheduler, CyclesTheBetasOfDeepSpeedsOneCycle) {
  const DeepSpeedLR cycle{
      deepspeed::OneCycle{.cycle_min_lr = {0.1}, .cycle_max_lr = {0.5}, .cycle_first_step_size = 2}};
  const auto adam = OptimizerFactory(AdamW{}).create({{"p", torch::zeros({1})}});
  Scheduler scheduler(cycle, *adam);
  for (int k = 0; k < 2; ++k) scheduler.step();
  EXPECT_EQ(adam->groups()[0].lr, 0.5);
  EXPECT_EQ(adam->groups()[0].betas, (std::array{0.8, 0.99}));
  // Where there are no betas DeepSpeed leaves the momentum alone.
  const auto sgd = OptimizerFactory(SGD{.momentum = 0.25}).create({{"p", torch::zeros({1})}});
  Scheduler other(cycle, *sgd);
  other.step();
  EXPECT_EQ(sgd->groups()[0].momentum, 0.25);
}

TEST(Scheduler, RefusesListsOfOtherGroups) {
  const auto optimizer = OptimizerFactory(AdamW{}).create({{"p", torch::zeros({1})}});
  const DeepSpeedLR warmup{deepspeed::WarmupLR{.warmup_max_lr = deepspeed::PerGroup{0.1, 0.2, 0.3}}};
  EXPECT_EQ(
      error_of<ConfigError>([&] { Scheduler(warmup, *optimizer); }),
      "[optim] scheduler.params.warmup_max_lr has the wrong size; expected 1, or one for each of 1 groups; "
      "got 3");
}

// A callback may set rates beside the schedule; they hold until the schedule's next step.
TEST(Scheduler, LeavesTheRatesOfTheOptimizersState) {
  auto optimizer = two_groups(), after = two_groups();
  Scheduler scheduler(ExponentialLR{.gamma = 0.5}, *optimizer), resumed(ExponentialLR{.gamma = 0.5}, *after);
  optimizer->groups()[0].lr = 0.125;
  load_state(*after, state_of(*optimizer));
  load_state(resumed, state_of(scheduler));
  EXPECT_EQ(after->groups()[0].lr, 0.125);
}

TEST(Scheduler, RefusesStateOfOtherGroups) {
  auto optimizer = two_groups();
  Scheduler scheduler(StepLR{.step_size = 1}, *optimizer);
  const SchedulerState three{.base_lrs = {0.1, 0.2, 0.3}, .last_lrs = {0.1, 0.2, 0.3}};
  EXPECT_EQ(error_of<CheckpointError>([&] { scheduler.load_state(three); }),
            "[optim] scheduler state does not fit; expected at most 2 parameter groups; got 3");
}

// Rates as torch 2.13 gives them to a group that is added with 0.5 after three steps, from the fourth step
// on.
TEST(Scheduler, TakesGroupsThatComeLaterAlong) {
  const std::map<std::string, std::pair<SchedulerOptions, std::vector<double>>> cases = {
      {"step", {StepLR{.step_size = 2, .gamma = 0.5}, {0.25, 0.25, 0.125, 0.125, 0.0625}}},
      {"multi_step", {MultiStepLR{.milestones = {2, 5}, .gamma = 0.5}, {0.5, 0.25, 0.25, 0.25, 0.25}}},
      {"exponential", {ExponentialLR{.gamma = 0.5}, {0.25, 0.125, 0.0625, 0.03125, 0.015625}}},
      {"constant", {ConstantLR{.factor = 0.5, .total_iters = 5}, {0.5, 1, 1, 1, 1}}},
      {"linear", {LinearLR{.start_factor = 0.5, .total_iters = 6}, {5 / 9.0, 5.5 / 9, 6 / 9.0, 6 / 9.0}}},
      {"cosine", {CosineAnnealingLR{.T_max = 5, .eta_min = 0.1}, {0.210557, 0.1}}},
      {"sequential",
       {SequentialLR{.schedulers = {LinearLR{.start_factor = 0.5, .total_iters = 3},
                                    StepLR{.step_size = 2, .gamma = 0.5}},
                     .milestones = {3}},
        {0.5, 0.25, 0.25, 0.125, 0.125}}},
      {"plateau", {ReduceLROnPlateau{.patience = 0}, {0.05, 0.005, 0.0005}}},
      // torch refuses these, whose curve says nothing of the group.
      {"one_cycle", {OneCycleLR{.max_lr = 1, .total_steps = 20}, {0.5, 0.5}}}};
  for (const auto& [name, expected] : cases) {
    SCOPED_TRACE(name);
    const auto optimizer =
        OptimizerFactory(SGD{.lr = 1.0, .momentum = 0.9}).create({{"a", torch::zeros({1})}});
    std::optional<Scheduler> scheduler(std::in_place, expected.first, *optimizer);
    const auto step = [&] { scheduler->needs_metric() ? scheduler->step(1.0) : scheduler->step(); };
    for (int i = 0; i < 3; ++i) step();
    optimizer->add_param_group({{"late", torch::zeros({1})}}, 0.5);
    for (const double rate : expected.second) {
      step();
      EXPECT_NEAR(optimizer->groups()[1].lr, rate, 1e-5 * rate);
      // As a run that goes on: the optimizer's state has the rates.
      const auto state = scheduler->state();
      const std::vector rates{optimizer->groups()[0].lr, optimizer->groups()[1].lr};
      scheduler.emplace(expected.first, *optimizer);
      scheduler->load_state(state);
      for (std::size_t i = 0; i < 2; ++i) optimizer->groups()[i].lr = rates[i];
    }
  }
}

TEST(SchedulerOptions, AreRefusedByFieldAndValue) {
  const auto refusal = [](const SchedulerOptions& options) {
    auto optimizer = two_groups();
    return error_of<ConfigError>([&] { Scheduler(options, *optimizer); });
  };
  const std::pair<SchedulerOptions, std::string> wrong[] = {
      {ConstantLR{.factor = 2}, "ConstantLR.factor is out of range; expected a number in [0, 1]; got 2"},
      {LinearLR{.start_factor = 0},
       "LinearLR.start_factor is out of range; expected a number in (0, 1]; got 0"},
      {LinearLR{.end_factor = -1},
       "LinearLR.end_factor is out of range; expected a number in [0, 1]; got -1"},
      {LinearLR{.total_iters = 0}, "LinearLR.total_iters is out of range; expected an integer >= 1; got 0"},
      {ExponentialLR{}, "ExponentialLR.gamma is out of range; expected a finite number > 0; got 0"},
      {StepLR{}, "StepLR.step_size is out of range; expected an integer >= 1; got 0"},
      {MultiStepLR{}, "MultiStepLR.milestones.size() is out of range; expected an integer >= 1; got 0"},
      {MultiStepLR{.milestones = {4, 2}},
       "MultiStepLR.milestones is out of order; expected ascending numbers; got 2 after 4"},
      {CosineAnnealingLR{}, "CosineAnnealingLR.T_max is out of range; expected an integer >= 1; got 0"},
      {LambdaLR{}, "LambdaLR.lr_lambda is empty; expected a function of the step; got none"},
      {OneCycleLR{.total_steps = 5},
       "OneCycleLR.max_lr is out of range; expected a finite number > 0; got 0"},
      {OneCycleLR{.max_lr = 1}, "OneCycleLR.total_steps is out of range; expected an integer >= 1; got 0"},
      {OneCycleLR{.max_lr = 1, .total_steps = 5, .anneal_strategy = "cosine"},
       "OneCycleLR.anneal_strategy is unknown; expected cos or linear; got \"cosine\""},
      {OneCycleLR{.max_lr = 1, .total_steps = 5, .pct_start = 1.5},
       "OneCycleLR.pct_start is out of range; expected a number in [0, 1]; got 1.5"},
      {WarmupLR{.warmup_type = "exp"},
       "WarmupLR.warmup_type is unknown; expected log or linear; got \"exp\""},
      {WarmupDecayLR{}, "WarmupDecayLR.total_num_steps is out of range; expected an integer >= 1000; got 0"},
      {ReduceLROnPlateau{.factor = 1},
       "ReduceLROnPlateau.factor is out of range; expected a number in (0, 1); got 1"},
      {ReduceLROnPlateau{.mode = "least"},
       "ReduceLROnPlateau.mode is unknown; expected min or max; got \"least\""},
      {SWALR{}, "SWALR.swa_lr.size() is out of range; expected an integer >= 1; got 0"},
      {SWALR{.swa_lr = {0.1, 0.0}}, "SWALR.swa_lr is out of range; expected a finite number > 0; got 0"},
      {SWALR{.swa_lr = {0.1, 0.1, 0.1}},
       "SWALR.swa_lr has the wrong size; expected 1, or one for each of 2 groups; got 3"},
      {SWALR{.swa_lr = {0.1}, .anneal_epochs = -1},
       "SWALR.anneal_epochs is out of range; expected an integer >= 0; got -1"},
      {SequentialLR{}, "SequentialLR.schedulers is empty; expected at least one scheduler; got none"},
      {SequentialLR{.schedulers = {LinearLR{}}, .milestones = {3}},
       "SequentialLR.milestones has the wrong size; expected one fewer than schedulers: 0; got 1"},
      {SequentialLR{.schedulers = {LinearLR{}, ReduceLROnPlateau{}}, .milestones = {3}},
       "SequentialLR.schedulers cannot be followed; expected schedules that are functions of the step; got "
       "ReduceLROnPlateau, which needs a metric"},
      {SequentialLR{.schedulers = {LinearLR{}, StepLR{}}, .milestones = {3}},
       "StepLR.step_size is out of range; expected an integer >= 1; got 0"},
  };
  for (const auto& [options, text] : wrong) EXPECT_EQ(refusal(options), "[optim] " + text);
}

}  // namespace
}  // namespace lockstep
