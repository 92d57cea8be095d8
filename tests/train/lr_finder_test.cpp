// Sweeps of learning rates: against Lightning's own, and what a sweep may not change.
#include <cmath>
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/paths.h"
#include "train/hungry.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::expect_error;
using ::testing::HasSubstr;
using testing::Hungry;

// Says one loss after the other, whatever its weight, and with which learning rate it was asked.
struct ScriptedImpl : Module<Example> {
  ScriptedImpl() { weight = register_parameter("weight", torch::ones({1})); }
  torch::Tensor training_step(const Example&, StepContext& step) override {
    rates.push_back(step.optimizer().groups().front().lr);
    const auto number = std::min(rates.size(), losses.size()) - 1;
    return (weight * 0).sum() + losses[number];
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.5}}; }
  torch::Tensor weight;
  std::vector<double> losses;
  std::vector<double> rates;
};
TORCH_MODULE(Scripted);

class LrFinderTest : public testing::HungryTest {
 protected:
  std::optional<LrFindResult> find(const Scripted& model, LrFindOptions how = {}) {
    Trainer trainer(options());
    return Tuner(trainer).lr_find(model, loader(rows(4), {.batch_size = 1}), how);
  }
  static Scripted scripted(std::vector<double> losses) {
    Scripted model;
    model->losses = std::move(losses);
    return model;
  }
};

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6 * expected[i]) << i;
}

// Four batches are run through again and again.
TEST_F(LrFinderTest, FindsWhatLightningFinds) {
  const auto golden = json::parse(std::ifstream(test::in_repository("tests/train/golden_tuner.json")));
  for (const auto& run : golden["lr_find"]) {
    SCOPED_TRACE(run["mode"].dump() + run["args"].dump());
    const auto& args = run["args"];
    LrFindOptions how{
        .min_lr = args["min_lr"], .max_lr = args["max_lr"], .num_training = args["num_training"]};
    if (run["mode"] == "linear") how.mode = LrFindMode::kLinear;
    if (args.contains("early_stop_threshold")) how.early_stop_threshold = std::nullopt;
    const auto model = scripted(run["raw_losses"]);
    const auto found = find(model, how);
    ASSERT_TRUE(found);
    expect_near(found->lr, run["lr"]);
    expect_near(model->rates, run["lr"]);
    expect_near(found->loss, run["smoothed_losses"]);
    for (const auto& [name, lr] :
         {std::pair("suggestion", found->suggestion()), {"suggestion_skip_begin_0", found->suggestion(0)}}) {
      ASSERT_EQ(lr.has_value(), !run[name].is_null()) << name;
      if (!lr) continue;
      EXPECT_NEAR(*lr, run[name].get<double>(), 1e-6 * *lr) << name;
    }
  }
}

TEST_F(LrFinderTest, StopsWhereTheLossExplodes) {
  std::vector<double> losses(20, 1.0);
  losses.resize(21, 1e9);
  EXPECT_EQ(find(scripted(losses))->lr.size(), 21U);
  EXPECT_EQ(find(scripted(losses), {.early_stop_threshold = {}})->lr.size(), 100U);
}

// Where four times the best loss would be better than the best one.
TEST_F(LrFinderTest, NegativeLossesDivergeUpwardsToo) {
  std::vector<double> losses;
  for (int i = 0; i < 100; ++i) losses.push_back(-1.0 - i);
  EXPECT_EQ(find(scripted(losses))->lr.size(), 100U);
  losses.resize(20);
  losses.push_back(1e9);
  EXPECT_EQ(find(scripted(losses))->lr.size(), 21U);
}

TEST_F(LrFinderTest, PointsWithoutAFiniteLossAreNotSuggested) {
  LrFindResult result{.lr = {1, 2, 3, 4, 5}, .loss = {9, NAN, 5, -INFINITY, 4}};
  EXPECT_EQ(result.suggestion(0, 0), 1);
  result.loss = {9, NAN, NAN, NAN, 4};
  EXPECT_FALSE(result.suggestion(0, 1));
}

// One step, one point, also where gradients accumulate.
TEST_F(LrFinderTest, CountsStepsNotBatches) {
  auto chosen = options();
  chosen.accumulate_grad_batches = 3;
  const auto model = scripted({1.0});
  Trainer trainer(chosen);
  const auto found = Tuner(trainer).lr_find(model, loader(rows(6), {.batch_size = 1}), {.num_training = 20});
  EXPECT_EQ(found->lr.size(), 20U);
  EXPECT_EQ(model->rates.size(), 60U);
  EXPECT_EQ(model->rates[1], model->rates[2]);
}

TEST_F(LrFinderTest, HandsOverWhatItSuggests) {
  std::vector<double> losses(15, 3.0);
  for (int i = 0; i < 15; ++i) losses.push_back(3.0 - 0.1 * i);
  for (const bool update_attr : {true, false}) {
    double applied = 0;
    const auto found =
        find(scripted(losses),
             {.num_training = 30, .update_attr = update_attr, .apply = [&](double lr) { applied = lr; }});
    EXPECT_EQ(applied, update_attr ? *found->suggestion() : 0);
  }
}

TEST_F(LrFinderTest, LeavesNothingBehind) {
  auto model = seeded_model();
  model->save_in = folder_ / "x.ckpt";
  const auto before = module_state(*model).clone();
  const auto random = random_state().clone();
  Trainer trainer(options());
  const auto found = Tuner(trainer).lr_find(model, data(64, 8), {.early_stop_threshold = std::nullopt});
  EXPECT_EQ(found->lr.size(), 100U);
  EXPECT_TRUE(module_state(*model) == before);
  EXPECT_TRUE(random_state() == random);
  EXPECT_EQ(model->steps, 0);
  EXPECT_EQ(trainer.global_step(), 0);
  EXPECT_FALSE(std::filesystem::exists(model->save_in));
}

// A run with the callback: as without it, but for the learning rate.
TEST_F(LrFinderTest, ARunGoesOnAsIfItHadNotSearched) {
  std::vector<StateTree> weights;
  for (const bool searches : {false, true}) {
    const auto finder = std::make_shared<LearningRateFinder>(LrFindOptions{.update_attr = false});
    auto chosen = options(searches ? std::vector<std::shared_ptr<Callback>>{finder}
                                   : std::vector<std::shared_ptr<Callback>>{});
    chosen.max_epochs = 2;
    auto model = seeded_model();
    Trainer trainer(chosen);
    trainer.fit(model, data(64, 8));
    EXPECT_EQ(finder->optimal_lr().has_value(), searches);
    EXPECT_EQ(trainer.global_step(), 16);
    weights.push_back(module_state(*model).clone());
  }
  EXPECT_TRUE(weights[0] == weights[1]);
}

// Strategies that shard keep float32 weights, which 16 bits do not show.
TEST_F(LrFinderTest, NeitherDoesOneWithMasterWeights) {
  using Choice = std::pair<StrategyOptions, PrecisionOptions>;
  for (const auto& [strategy, precision] :
       {Choice{Fsdp{}, Bf16Mixed{}}, Choice{DeepSpeed{.stage = 2}, Bf16Mixed{}}, Choice{Fsdp{}, Fp32{}}}) {
    std::vector<StateTree> weights;
    for (const bool searches : {false, true}) {
      auto chosen = options();
      if (searches)
        chosen.callbacks.push_back(std::make_shared<LearningRateFinder>(LrFindOptions{.update_attr = false}));
      chosen.strategy = strategy;
      chosen.precision = precision;
      Trainer trainer(chosen);
      trainer.fit(seeded_model(), data(64, 8));
      const auto file = folder_ / "after.ckpt";
      trainer.save_checkpoint(file, /*weights_only=*/true);
      weights.push_back(Checkpoint(file).entry("model"));
    }
    EXPECT_TRUE(weights[0] == weights[1]) << "precision " << precision.index();
  }
}

struct WideningImpl final : testing::HungryImpl {
  at::Tensor bias() { return net->parameters().back(); }
  void on_train_epoch_start(TrainContext& context) override {
    if (context.current_epoch() > 0) bias().set_requires_grad(false);
  }
  void on_train_epoch_end(TrainContext& context) override { context.set_accumulate_grad_batches(4); }
};

TEST_F(LrFinderTest, WhatHooksOfTrialsChangeIsForgotten) {
  for (const bool searches : {false, true}) {
    auto chosen = options();
    if (searches) chosen.callbacks.push_back(std::make_shared<LearningRateFinder>());
    Trainer trainer(chosen);
    const auto model = std::make_shared<WideningImpl>();
    trainer.fit(model, data(64, 8));
    EXPECT_EQ(trainer.global_step(), 8) << searches;
    EXPECT_TRUE(model->bias().requires_grad()) << searches;
  }
}

// The schedule, too, begins with the rate found, whose half it gives to the second epoch.
TEST_F(LrFinderTest, ARunGoesOnWithTheRateFound) {
  const auto finder = std::make_shared<LearningRateFinder>();
  std::vector<double> rates;
  const auto recorder =
      std::make_shared<LambdaCallback>(LambdaHooks{.on_train_epoch_start = [&](TrainContext& context) {
        rates.push_back(context.optimizer().groups().front().lr);
      }});
  auto chosen = options({recorder, finder});
  chosen.max_epochs = 2;
  Trainer(chosen).fit(seeded_model(), data(64, 8));
  const auto found = finder->optimal_lr()->suggestion();
  ASSERT_TRUE(found);
  EXPECT_THAT(rates, ::testing::ElementsAre(*found, *found / 2));
}

TEST_F(LrFinderTest, WhatCannotWorkIsRefused) {
  const auto model = scripted({1.0});
  expect_error<ConfigError>([&] { find(model, {.min_lr = 1, .max_lr = 0.1}); }, {"max_lr", "1", "0.1"});
  expect_error<ConfigError>([&] { find(model, {.num_training = 0}); }, {"num_training", ">= 1"});
  Trainer trainer(options({std::make_shared<LearningRateFinder>()}));
  expect_error<ConfigError>([&] { Tuner(trainer).lr_find(model, loader(rows(4), {.batch_size = 1})); },
                            {"already configured with a `LearningRateFinder`"});
  auto chosen = options();
  chosen.fast_dev_run = true;
  Trainer trying(chosen);
  EXPECT_FALSE(Tuner(trying).lr_find(model, loader(rows(4), {.batch_size = 1})));
  chosen = options();
  chosen.limit_train_batches = 0;
  Trainer limited(chosen);
  expect_error<ConfigError>([&] { Tuner(limited).lr_find(model, loader(rows(4), {.batch_size = 1})); },
                            {"lr_find needs batches", "limit_train_batches above 0", "got 0"});
  EXPECT_TRUE(model->rates.empty());
}

struct TwoImpl : ScriptedImpl {
  Optimizers configure_optimizers() override {
    return several_optimizers({{.optimizer = SGD{.lr = 0.1}}, {.optimizer = SGD{.lr = 0.2}}});
  }
  bool automatic_optimization() const override { return false; }
};
TORCH_MODULE(Two);

TEST_F(LrFinderTest, SeveralOptimizersAreRefused) {
  Trainer trainer(options());
  expect_error<ConfigError>([&] { Tuner(trainer).lr_find(Two(), loader(rows(4), {.batch_size = 1})); },
                            {"returned 2", "only works with single optimizer"});
}

TEST_F(LrFinderTest, DrawsTheCurve) {
  LrFindResult result;
  for (int i = 0; i < 30; ++i) {
    result.lr.push_back(std::pow(10, -8 + i * 0.25));
    result.loss.push_back(i == 3 ? NAN : 2.0 - (i > 20 ? 0.1 * (i - 20) : 0));
  }
  const auto file = folder_ / "curve.svg";
  result.plot(file);
  std::ifstream stream(file);
  const std::string svg{std::istreambuf_iterator<char>(stream), {}};
  for (const char* part : {"<svg xmlns=", "Learning rate (logarithmic)", ">Loss<", "<polyline", "<circle",
                           "suggestion ", "</svg>"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("nan")));
  expect_error<IoError>([&] { result.plot(folder_ / "nowhere" / "curve.svg"); }, {"curve.svg"});
}

}  // namespace
}  // namespace lockstep
