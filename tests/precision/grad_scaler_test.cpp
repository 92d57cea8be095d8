// GradScaler: torch's numbers step by step, its states and its errors.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/paths.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::expect_error;

const json& golden_scaler() {
  static const json file =
      json::parse(std::ifstream(test::in_repository("tests/precision/grad_scaler.json")));
  return file;
}

json json_of(const StateTree& state) {
  auto result = json::object();
  for (const auto& [name, value] : state.entries()) {
    if (const auto* number = std::get_if<std::int64_t>(&value)) result[name] = *number;
    if (const auto* number = std::get_if<double>(&value)) result[name] = *number;
  }
  return result;
}

constexpr GradScalerOptions kOptions{
    .init_scale = 4.0, .growth_factor = 2.0, .backoff_factor = 0.5, .growth_interval = 3};

// One parameter, SGD, and a scaler.
struct Iteration {
  explicit Iteration(const GradScalerOptions& options = kOptions) : scaler(options) {}

  void backward() {
    optimizer->zero_grad();
    scaler.scale((parameter * 0.25).sum()).backward();
  }
  float gradient() const { return parameter.grad()[0].item<float>(); }
  float value() const { return parameter[0].item<float>(); }

  torch::Tensor parameter = torch::ones({3}).requires_grad_();
  std::unique_ptr<Optimizer> optimizer = OptimizerFactory(SGD{.lr = 0.5}).create({{"parameter", parameter}});
  GradScaler scaler;
};

// The scales that DeepSpeed's DynamicLossScaler goes through: "." for a good step, "I" for an overflow.
std::vector<double> scales_after(const GradScalerOptions& options, const std::string& steps) {
  Iteration it(options);
  std::vector<double> scales;
  for (const char step : steps) {
    it.backward();
    if (step == 'I') it.parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
    it.scaler.step(*it.optimizer);
    it.scaler.update();
    scales.push_back(it.scaler.get_scale());
  }
  return scales;
}

TEST(GradScaler, WaitsLongerWithTheFirstGrowthAsDeepSpeedDoes) {
  const GradScalerOptions options{.init_scale = 16, .growth_interval = 2, .growth_delay = 1};
  EXPECT_EQ(scales_after(options, "......"), (std::vector<double>{16, 16, 32, 32, 64, 64}));
  EXPECT_EQ(scales_after(options, "..I..."), (std::vector<double>{16, 16, 8, 8, 8, 16}));
}

TEST(GradScaler, PutsUpWithOverflowsUntilItBacksOff) {
  const GradScalerOptions options{.init_scale = 16, .growth_interval = 2, .hysteresis = 2, .growth_delay = 1};
  // Only growth refills it.
  EXPECT_EQ(scales_after(options, "I.II"), (std::vector<double>{16, 16, 8, 4}));
  EXPECT_EQ(scales_after(options, "I...II"), (std::vector<double>{16, 16, 16, 32, 32, 16}));
  auto refilling = options;
  refilling.consecutive_hysteresis = true;
  EXPECT_EQ(scales_after(refilling, "I.II"), (std::vector<double>{16, 16, 16, 8}));
}

TEST(GradScaler, RefusesAnOverflowAtItsMinimum) {
  const GradScalerOptions options{.init_scale = 4, .growth_interval = 2, .min_scale = 2};
  EXPECT_EQ(scales_after(options, "I"), (std::vector<double>{2}));
  expect_error<Error>([&] { scales_after(options, "II"); }, {"2.0", "minimum"});
}

TEST(GradScaler, MayStayAtItsMinimum) {
  const GradScalerOptions options{
      .init_scale = 4, .growth_interval = 2, .min_scale = 2, .fails_at_min_scale = false};
  EXPECT_EQ(scales_after(options, "III.."), (std::vector<double>{2, 2, 2, 2, 4}));
}

StateTree state_after_overflow(const GradScalerOptions& options) {
  Iteration it(options);
  it.backward();
  it.parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  it.scaler.step(*it.optimizer);
  it.scaler.update();
  return it.scaler.state();
}

TEST(GradScaler, NeitherLearnsNorLoadsAScaleThatIsChosen) {
  const GradScalerOptions chosen{.init_scale = 8, .growth_interval = 1, .dynamic = false};
  const GradScalerOptions found{.init_scale = 16, .growth_interval = 2};
  EXPECT_EQ(scales_after(chosen, "..I."), (std::vector<double>{8, 8, 8, 8}));
  GradScaler stays(chosen), learns(found);
  stays.load_state(state_after_overflow({.init_scale = 64}));
  EXPECT_EQ(stays.get_scale(), 8);
  learns.load_state(state_after_overflow(chosen));
  EXPECT_EQ(learns.get_scale(), 16);
  EXPECT_EQ(learns.state().get<std::int64_t>("growth_interval"), 2);
}

TEST(GradScaler, CountsOnAfterAResume) {
  const GradScalerOptions options{.growth_delay = 1};
  GradScaler scaler(options);
  scaler.load_state(state_after_overflow(options));
  EXPECT_EQ(scaler.total_skipped_steps(), 1);
  EXPECT_EQ(scaler.skipped_steps(), 0) << "of its own";
}

TEST(GradScaler, KeepsTheHysteresisThatIsLeft) {
  const GradScalerOptions options{.init_scale = 16, .growth_interval = 9, .hysteresis = 2};
  Iteration first(options);
  first.backward();
  first.parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  first.scaler.step(*first.optimizer);
  first.scaler.update();
  Iteration second(options);
  second.scaler.load_state(first.scaler.state());
  second.backward();
  second.parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  second.scaler.step(*second.optimizer);
  second.scaler.update();
  EXPECT_EQ(second.scaler.get_scale(), 8);
}

float scripted(const std::string& kind) {
  if (kind == "N") return std::numeric_limits<float>::quiet_NaN();
  return kind == "I" ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity();
}

void run_row(Iteration& it, const json& row) {
  EXPECT_EQ(it.scaler.get_scale(), row.at("scale_before"));
  it.backward();
  EXPECT_EQ(it.gradient(), row.at("scaled_grad0"));
  if (!row.at("inf").is_null()) it.parameter.grad()[1].fill_(scripted(row.at("inf")));
  it.scaler.unscale(*it.optimizer);
  EXPECT_EQ(it.gradient(), row.at("unscaled_grad0"));
  EXPECT_EQ(it.scaler.step(*it.optimizer), !row.at("skipped").get<bool>());
  it.scaler.update();
  EXPECT_EQ(it.value(), row.at("param0"));
  EXPECT_EQ(it.scaler.get_scale(), row.at("scale_after"));
  EXPECT_EQ(it.scaler.state().get<std::int64_t>("_growth_tracker"), row.at("growth_tracker_after"));
}

TEST(GradScalerTest, GivesTorchsNumbersStepByStep) {
  ASSERT_EQ(golden_scaler().at("patterns").size(), 5U);
  for (const auto& [name, pattern] : golden_scaler().at("patterns").items()) {
    SCOPED_TRACE(name);
    Iteration it;
    for (const auto& row : pattern.at("rows")) {
      SCOPED_TRACE(row.at("step"));
      run_row(it, row);
    }
    EXPECT_EQ(json_of(it.scaler.state()), pattern.at("state_dict"));
  }
}

// Stopped after every step and continued by another scaler.
TEST(GradScalerTest, GoesOnFromItsState) {
  for (const auto& [name, pattern] : golden_scaler().at("patterns").items()) {
    SCOPED_TRACE(name);
    Iteration it;
    for (const auto& row : pattern.at("rows")) {
      run_row(it, row);
      const auto state = it.scaler.state();
      it.scaler = GradScaler();
      it.scaler.load_state(state);
    }
  }
}

TEST(GradScalerTest, StepsWithGradientsThatAnotherOneHasScaled) {
  Iteration before, after;
  before.backward();
  after.scaler.load_state(before.scaler.state());
  after.parameter.mutable_grad() = before.parameter.grad().clone();
  after.scaler.unscale(*after.optimizer);
  before.scaler.unscale(*before.optimizer);
  EXPECT_TRUE(after.parameter.grad().equal(before.parameter.grad()));
  EXPECT_TRUE(after.scaler.step(*after.optimizer));
  after.scaler.update();
}

TEST(GradScalerTest, TakesStateBackWithoutBeingMadeAnew) {
  Iteration it;
  const auto before = it.scaler.state();
  it.backward();
  it.scaler.step(*it.optimizer);
  it.scaler.update(64.0);
  EXPECT_EQ(it.scaler.get_scale(), 64.0);
  it.scaler.load_state(before);
  EXPECT_EQ(it.scaler.get_scale(), 4.0);
  EXPECT_EQ(it.scaler.state(), before);
}

TEST(GradScalerTest, HasTorchsDefaults) {
  EXPECT_EQ(json_of(GradScaler().state()), golden_scaler().at("default_state_dict"));
  EXPECT_TRUE(GradScaler().is_enabled());
}

TEST(GradScalerTest, RefusesWhatTorchRefuses) {
  ASSERT_TRUE(golden_scaler().at("misuse").contains("step before scale"));
  Iteration it;
  auto& scaler = it.scaler;
  auto* const optimizer = it.optimizer.get();
  expect_error<Error>([&] { scaler.step(*optimizer); }, {"step()", "before scale()"});
  expect_error<Error>([&] { scaler.unscale(*optimizer); }, {"unscale()", "before scale()"});
  expect_error<Error>([&] { scaler.update(); }, {"update()", "before scale()"});
  scaler.scale(torch::ones({}));
  expect_error<Error>([&] { scaler.update(); }, {"nothing was unscaled"});
  expect_error<Error>([&] { scaler.step(*optimizer); }, {"no gradient"});
  scaler = GradScaler(kOptions);
  it.backward();
  scaler.unscale(*optimizer);
  expect_error<Error>([&] { scaler.unscale(*optimizer); }, {"already been called"});
  scaler.step(*optimizer);
  expect_error<Error>([&] { scaler.unscale(*optimizer); }, {"after step()"});
  expect_error<Error>([&] { scaler.step(*optimizer); }, {"already been called"});
  scaler.update(16.0);
  EXPECT_EQ(scaler.get_scale(), golden_scaler().at("misuse").at("scale after update(16.)"));
  expect_error<CheckpointError>([&] { scaler.load_state({}); }, {"empty", "disabled"});
}

TEST(GradScalerTest, RefusesOptionsOutOfRange) {
  expect_error<ConfigError>([] { GradScaler({.init_scale = 0}); }, {"init_scale", "> 0"});
  expect_error<ConfigError>([] { GradScaler({.growth_factor = 1}); }, {"growth_factor", "> 1"});
  expect_error<ConfigError>([] { GradScaler({.backoff_factor = 1}); }, {"backoff_factor"});
  expect_error<ConfigError>([] { GradScaler({.growth_interval = 0}); }, {"growth_interval"});
}

TEST(GradScalerTest, ADisabledOneIsNotThere) {
  Iteration it({.enabled = false});
  it.backward();
  EXPECT_EQ(it.gradient(), 0.25F);
  it.scaler.unscale(*it.optimizer);
  it.parameter.grad()[1].fill_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(it.scaler.step(*it.optimizer));
  it.scaler.update();
  EXPECT_EQ(it.scaler.get_scale(), 1.0);
  EXPECT_TRUE(it.scaler.state().empty());
}

TEST(GradScalerTest, AScalarLossIsScaledInFloat32) {
  GradScaler scaler;
  const auto loss = scaler.scale(torch::full({}, 8.0, at::kHalf));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.item<float>(), 8 * 65536.0F);
}

TEST(GradScalerTest, RefusesFloat16Gradients) {
  const auto parameter = torch::ones({2}, at::kHalf).requires_grad_();
  const auto optimizer = OptimizerFactory(SGD{}).create({{"weight", parameter}});
  GradScaler scaler;
  scaler.scale(parameter.sum() * 1e-6).backward();
  expect_error<Error>([&] { scaler.unscale(*optimizer); }, {"weight", "float16", "16-true"});
}

// Those of a sharded model that computes in float16, if they are kept in it.
TEST(GradScalerTest, UnscalesFloat16GradientsOfFloat32Parameters) {
  const auto parameter = torch::ones({3}).requires_grad_();
  const auto optimizer = OptimizerFactory(SGD{.lr = 0.5}).create({{"weight", parameter}});
  GradScaler scaler(kOptions);
  scaler.scale(torch::zeros({}));
  parameter.mutable_grad() = torch::full({3}, 2.0, at::kHalf);
  EXPECT_TRUE(scaler.step(*optimizer));
  EXPECT_TRUE(parameter.grad().equal(torch::full({3}, 0.5, at::kHalf)));
  EXPECT_TRUE(parameter.equal(torch::full({3}, 0.75)));
  scaler.update();
  parameter.mutable_grad() = torch::full({3}, std::numeric_limits<float>::infinity()).to(at::kHalf);
  EXPECT_FALSE(scaler.step(*optimizer));
  EXPECT_TRUE(parameter.equal(torch::full({3}, 0.75)));
}

// An overflow of one optimizer skips its step alone, and backs the scale off for both.
TEST(GradScalerTest, JudgesEachOptimizerByItself) {
  Iteration it;
  const auto other = torch::ones({1}).requires_grad_();
  const auto others = OptimizerFactory(SGD{.lr = 0.5}).create({{"other", other}});
  it.backward();
  it.scaler.scale(other.sum()).backward();
  other.grad().fill_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(it.scaler.step(*it.optimizer));
  EXPECT_TRUE(it.scaler.has_stepped());
  EXPECT_FALSE(it.scaler.step(*others));
  it.scaler.update();
  EXPECT_FALSE(it.scaler.has_stepped());
  EXPECT_EQ(it.scaler.get_scale(), 2.0);
  EXPECT_EQ(it.value(), 0.875F);
  EXPECT_EQ(other.item<float>(), 1.0F);
}

TEST(GradScalerTest, WithoutAScaleStepsAgainWithTheSameGradients) {
  Iteration it({.init_scale = 1, .dynamic = false});
  it.backward();
  const auto before = it.value();
  EXPECT_TRUE(it.scaler.step(*it.optimizer));
  const auto step = it.value() - before;
  EXPECT_TRUE(it.scaler.step(*it.optimizer));
  EXPECT_EQ(it.value() - before, 2 * step);
  it.parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(it.scaler.step(*it.optimizer));
}

// What another rank has found counts as one's own.
TEST(GradScalerTest, ObeysWhatIsWrittenToFoundInf) {
  Iteration it;
  it.backward();
  expect_error<Error>([&] { it.scaler.found_inf(*it.optimizer); }, {"before unscale()"});
  it.scaler.unscale(*it.optimizer);
  EXPECT_TRUE(it.scaler.is_unscaled(*it.optimizer));
  it.scaler.found_inf(*it.optimizer).fill_(1.0);
  EXPECT_FALSE(it.scaler.step(*it.optimizer));
  it.scaler.update();
  EXPECT_EQ(it.scaler.get_scale(), 2.0);
}

TEST(GradScalerTest, AgreesWithRanksThatHaveOtherPartsOfGradients) {
  Iteration it;
  const auto with = [](float of_others) {
    return [of_others](const at::Tensor& own) { own.clamp_min_(of_others); };
  };
  expect_error<Error>([&] { it.scaler.agree(*it.optimizer, with(0)); }, {"before unscale()"});
  for (const float of_others : {0.0F, 1.0F}) {
    it.backward();
    it.optimizer->zero_grad();  // this rank has no part of any
    it.scaler.unscale(*it.optimizer);
    it.scaler.agree(*it.optimizer, with(of_others));
    EXPECT_EQ(it.scaler.found_inf(*it.optimizer).item<float>(), of_others);
    EXPECT_EQ(it.scaler.step(*it.optimizer), of_others == 0);
    it.scaler.update();
  }
  it.backward();
  it.optimizer->zero_grad();
  it.scaler.unscale(*it.optimizer);
  it.scaler.agree(*it.optimizer, with(-1));  // nobody has
  expect_error<Error>([&] { it.scaler.step(*it.optimizer); }, {"found no gradient to check"});
}

TEST(GradScalerTest, ForgetsGradientsThatAreThrownAway) {
  Iteration it;
  it.backward();
  it.scaler.unscale(*it.optimizer);
  it.scaler.discard(*it.optimizer);
  it.backward();
  it.scaler.step(*it.optimizer);
  EXPECT_EQ(it.value(), 0.875F);
}

}  // namespace
}  // namespace lockstep
