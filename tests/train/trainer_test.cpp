// The loops of fit, by what they do to a model whose gradients can be worked out by hand.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

// One weight w; the loss of a batch is w * mean(x), so its gradient is mean(x).
struct LineImpl : Module<Example> {
  explicit LineImpl(OptimizerFactory optimizer = SGD{.lr = 1.0}) : optimizer_(std::move(optimizer)) {
    weight = register_parameter("weight", torch::zeros({1}));
  }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    ++training_steps;
    const auto loss = (weight * batch.data.mean()).sum();
    step.log("train_loss", loss, {.on_epoch = true});
    return loss;
  }
  void validation_step(const Example& batch, StepContext& step) override {
    ++validation_steps;
    step.log("val_mean", batch.data.mean());
  }
  Optimizers configure_optimizers() override { return {.optimizer = optimizer_, .lr_scheduler = scheduler}; }

  torch::Tensor weight;
  std::optional<LRScheduler> scheduler;
  int training_steps = 0;
  int validation_steps = 0;

 private:
  OptimizerFactory optimizer_;
};
TORCH_MODULE(Line);

class TrainerTest : public ::testing::Test {
 protected:
  TrainerOptions options(std::int64_t max_epochs = 1) {
    TrainerOptions found{.max_epochs = max_epochs, .enable_progress_bar = false};
    found.run.run_dir = folder_ / "run";
    return found;
  }
  // Batches of one sample each.
  static Loader<Example> batches(std::vector<float> values) {
    const auto count = static_cast<std::int64_t>(values.size());
    return loader(tensor_dataset(torch::tensor(values).view({count, 1})), {.batch_size = 1});
  }
  float weight_after(TrainerOptions chosen, const std::vector<float>& values) {
    Line model;
    Trainer(std::move(chosen)).fit(model, batches(values));
    return model->weight.item<float>();
  }
  nlohmann::json summary() { return nlohmann::json::parse(std::ifstream(folder_ / "run" / "summary.json")); }

  test::TemporaryFolder folder_;
};

TEST_F(TrainerTest, StepsOncePerWindowOfAccumulatedMicroBatches) {
  auto chosen = options();
  EXPECT_EQ(weight_after(chosen, {1, 2, 3, 4}), -10);
  chosen.accumulate_grad_batches = 2;
  EXPECT_EQ(weight_after(chosen, {1, 2, 3, 4}), -1.5F - 3.5F);
}

TEST_F(TrainerTest, DividesAPartialWindowByWhatItHas) {
  auto chosen = options();
  chosen.accumulate_grad_batches = 4;
  EXPECT_EQ(weight_after(chosen, {1, 2, 3, 4, 6, 8}), -2.5F - 7.0F);
  chosen.partial_window = PartialWindow::kLightning;
  EXPECT_EQ(weight_after(chosen, {1, 2, 3, 4, 6, 8}), -2.5F - 3.5F);
}

// DeepSpeed's: windows know nothing of epochs, and what is open at the end is left.
TEST_F(TrainerTest, CarriesAWindowIntoTheNextEpoch) {
  auto chosen = options(/*max_epochs=*/3);
  chosen.accumulate_grad_batches = 2;
  chosen.partial_window = PartialWindow::kCarry;
  EXPECT_EQ(weight_after(chosen, {1, 2, 4}), -(1.5F + 2.5F + 3.0F + 1.5F));
  EXPECT_EQ(summary().at("steps"), 4);
  chosen.max_epochs = 1;
  EXPECT_EQ(weight_after(chosen, {1, 2, 4}), -1.5F);
}

TEST_F(TrainerTest, ClipsTheNormOrEachValue) {
  auto chosen = options();
  chosen.gradient_clip_val = 2;
  EXPECT_NEAR(weight_after(chosen, {1, 8}), -1 - 2, 1e-5);
  chosen.gradient_clip_algorithm = ClipAlgorithm::kValue;
  EXPECT_EQ(weight_after(chosen, {1, 8}), -3);
}

TEST_F(TrainerTest, LimitsBatchesByNumberAndByFraction) {
  auto chosen = options();
  chosen.limit_train_batches = 3;
  EXPECT_EQ(weight_after(chosen, {1, 1, 1, 1}), -3);
  chosen.limit_train_batches = 0.5;
  EXPECT_EQ(weight_after(chosen, {1, 1, 1, 1}), -2);
  chosen.limit_train_batches = 0;
  EXPECT_EQ(weight_after(chosen, {1, 1, 1, 1}), 0);
  chosen.limit_train_batches = 0.1;
  test::expect_error<ConfigError>(
      [&] {
        weight_after(chosen, {1, 1, 1, 1});
      },
      {"limit_train_batches", "0.1", "0.25"});
}

TEST_F(TrainerTest, AFractionThatLeavesNoBatchOfValidationIsRefusedBeforeTraining) {
  Line model;
  auto chosen = options();
  chosen.limit_val_batches = 0.4;
  chosen.num_sanity_val_steps = 0;
  Trainer trainer(chosen);
  test::expect_error<ConfigError>(
      [&] {
        trainer.fit(model, batches({1}), batches({1, 1}));
      },
      {"limit_val_batches", "0.4", "0.5"});
  EXPECT_EQ(model->training_steps, 0);
}

TEST_F(TrainerTest, MaxStepsEndsInTheMiddleOfAnEpochWithoutValidation) {
  Line model;
  auto chosen = options(-1);
  chosen.max_steps = 5;
  chosen.num_sanity_val_steps = 0;
  Trainer trainer(chosen);
  trainer.fit(model, batches({1, 1, 1}), batches({1, 1}));
  EXPECT_EQ(trainer.global_step(), 5);
  EXPECT_EQ(model->training_steps, 5);
  EXPECT_EQ(model->validation_steps, 2);  // after the first epoch only
}

TEST_F(TrainerTest, ValidatesEveryNthEpochAndTriesItFirst) {
  Line model;
  auto chosen = options(4);
  chosen.check_val_every_n_epoch = 2;
  chosen.num_sanity_val_steps = 1;
  Trainer(chosen).fit(model, batches({1}), batches({1, 1, 1}));
  EXPECT_EQ(model->validation_steps, 1 + 2 * 3);
}

struct StopAtOnce : Callback {
  void on_train_batch_end(StepContext& step, const TrainOutput&) override { step.stop(); }
};

// Lightning's vectors: (batches of an epoch, min_epochs, min_steps) -> steps run.
TEST_F(TrainerTest, StopIsHonouredOnceTheMinimaAreReached) {
  const std::vector<std::tuple<int, int, int, int>> vectors{
      {3, 0, 10, 10}, {3, 2, 0, 6}, {5, 2, 0, 10}, {3, 3, 10, 10}, {5, 3, 10, 15}};
  for (const auto& [train_batches, min_epochs, min_steps, expected] : vectors) {
    auto chosen = options(100);
    chosen.min_epochs = min_epochs;
    chosen.min_steps = min_steps;
    chosen.callbacks = {std::make_shared<StopAtOnce>()};
    Line model;
    Trainer trainer(chosen);
    trainer.fit(model, batches(std::vector<float>(train_batches, 1)));
    EXPECT_EQ(trainer.global_step(), expected) << train_batches << ' ' << min_epochs << ' ' << min_steps;
  }
}

TEST_F(TrainerTest, SchedulesBySteppedBatchesOrByEpochs) {
  Line model;
  model->scheduler = LRScheduler{.scheduler = ExponentialLR{.gamma = 0.5}, .interval = Interval::kStep};
  Trainer(options()).fit(model, batches({1, 1, 1}));
  EXPECT_EQ(model->weight.item<float>(), -(1 + 0.5F + 0.25F));

  Line by_epoch;
  by_epoch->scheduler = LRScheduler{.scheduler = ExponentialLR{.gamma = 0.5}, .interval = Interval::kEpoch};
  Trainer(options(2)).fit(by_epoch, batches({1, 1}));
  EXPECT_EQ(by_epoch->weight.item<float>(), -(2 + 1.0F));
}

TEST_F(TrainerTest, SchedulesEveryFrequencyThStepOrEpoch) {
  const auto steps_of = [&](const LRScheduler& scheduler, const std::function<void(TrainerOptions&)>& change,
                            std::size_t count) {
    Line model;
    model->scheduler = scheduler;
    auto chosen = options();
    change(chosen);
    Trainer(chosen).fit(model, batches(std::vector<float>(count, 1)));
    return model->weight.item<float>();
  };
  const LRScheduler third_step{
      .scheduler = ExponentialLR{.gamma = 0.5}, .interval = Interval::kStep, .frequency = 3};
  // 1 behind each of batches 0-2, a half behind 3-5, a quarter behind 6.
  EXPECT_EQ(steps_of(
                third_step, [](auto&) {}, 7),
            -(3 + 1.5F + 0.25F));
  // What is counted are optimizer steps, across epochs: 8 of 4 epochs, and 6 of 2.
  const auto windows = [](std::int64_t epochs) {
    return [epochs](auto& chosen) {
      chosen.accumulate_grad_batches = 4;
      chosen.max_epochs = epochs;
    };
  };
  EXPECT_EQ(steps_of(third_step, windows(4), 8), -(3 + 1.5F + 0.5F));
  EXPECT_EQ(steps_of(third_step, windows(2), 12), -(3 + 1.5F));
  const LRScheduler second_epoch{
      .scheduler = ExponentialLR{.gamma = 0.5}, .interval = Interval::kEpoch, .frequency = 2};
  EXPECT_EQ(steps_of(
                second_epoch, [](auto& chosen) { chosen.max_epochs = 5; }, 1),
            -(2 + 1.0F + 0.25F));
}

TEST_F(TrainerTest, PlateauWatchesItsMetric) {
  Line model;
  model->scheduler =
      LRScheduler{.scheduler = ReduceLROnPlateau{.factor = 0.5, .patience = 0}, .monitor = "val_mean"};
  Trainer(options(3)).fit(model, batches({1}), batches({4}));
  EXPECT_EQ(model->weight.item<float>(), -(1 + 1 + 0.5F));

  Line without;
  without->scheduler = LRScheduler{.scheduler = ReduceLROnPlateau{}, .monitor = "val_maen"};
  test::expect_error<ConfigError>([&] { Trainer(options()).fit(without, batches({1})); },
                                  {"val_maen", "train_loss"});
}

// A schedule of epochs goes by each value once, in the epoch that has measured it; one of steps by the
// latest.
TEST_F(TrainerTest, PlateauWaitsForTheEpochsThatValidate) {
  const auto weight_of = [&](Interval interval) {
    Line model;
    model->scheduler = LRScheduler{.scheduler = ReduceLROnPlateau{.factor = 0.5, .patience = 0},
                                   .interval = interval,
                                   .monitor = "val_mean"};
    auto chosen = options(6);
    chosen.check_val_every_n_epoch = 2;
    Trainer(chosen).fit(model, batches({1}), batches({4}));
    return model->weight.item<float>();
  };
  EXPECT_EQ(weight_of(Interval::kEpoch), -(4 + 2 * 0.5F));
  EXPECT_EQ(weight_of(Interval::kStep), -(3 + 0.5F + 0.25F + 0.125F));
}

TEST_F(TrainerTest, WritesWhatTheRunLeaves) {
  Line model;
  auto chosen = options(2);
  chosen.log_every_n_steps = 1;
  chosen.run.save_weights = folder_ / "w.safetensors";
  Trainer(chosen).fit(model, batches({1, 3}));
  EXPECT_EQ(summary().at("status"), "success");
  EXPECT_EQ(summary().at("steps"), 4);
  EXPECT_EQ(summary().at("samples"), 4);
  EXPECT_EQ(test::content(folder_ / "run" / "metrics.csv"),
            "epoch,step,train_loss_epoch,train_loss_step\n0,0,,0\n0,1,,-3\n0,1,-1.5,\n1,2,,-4\n1,3,,-15\n1,3,"
            "-9.5,\n");
  Line other;
  load_weights(folder_ / "w.safetensors", *other);
  EXPECT_EQ(other->weight.item<float>(), -8);
  load_weights(folder_ / "run" / "checkpoints" / "last.ckpt" / "model.safetensors", *other);
}

struct Failing : Callback {
  void on_train_batch_start(StepContext&) override { throw std::runtime_error("scripted"); }
  void on_exception(TrainContext&, const std::exception& error) override { seen = error.what(); }
  std::string seen;
};

TEST_F(TrainerTest, TellsCallbacksOfAnErrorAndLetsItPass) {
  Line model;
  const auto callback = std::make_shared<Failing>();
  auto chosen = options();
  chosen.callbacks = {callback};
  test::expect_error<std::runtime_error>([&] { Trainer(chosen).fit(model, batches({1})); }, {"scripted"});
  EXPECT_EQ(callback->seen, "scripted");
  EXPECT_EQ(summary().at("status"), "failed");
}

TEST_F(TrainerTest, AFailedTrainerSaysSoAndItsModelIsBackInTrainingMode) {
  Line model;
  const auto callback = std::make_shared<Failing>();
  auto chosen = options();
  chosen.callbacks = {callback};
  Trainer trainer(chosen);
  test::expect_error<std::runtime_error>([&] { trainer.fit(model, batches({1}), batches({1})); },
                                         {"scripted"});
  EXPECT_TRUE(model->is_training());
  test::expect_error<ConfigError>([&] { trainer.fit(model, batches({1})); }, {"last run failed"});
}

struct FailingTwice : Failing {
  void on_exception(TrainContext&, const std::exception&) override { throw std::runtime_error("second"); }
};

TEST_F(TrainerTest, AFailureOfTheHandlersDoesNotHideTheFirst) {
  Line model;
  auto chosen = options();
  chosen.callbacks = {std::make_shared<FailingTwice>()};
  test::expect_error<std::runtime_error>([&] { Trainer(chosen).fit(model, batches({1})); }, {"scripted"});
  EXPECT_EQ(summary().at("status"), "failed");
}

struct NoLossImpl : LineImpl {
  torch::Tensor training_step(const Example&, StepContext&) override { return loss; }
  torch::Tensor loss;
};
TORCH_MODULE(NoLoss);

TEST_F(TrainerTest, NamesWhatALossLacks) {
  NoLoss model;
  const auto fit = [&] { Trainer(options()).fit(model, batches({1})); };
  model->loss = torch::zeros({3}, torch::requires_grad());
  test::expect_error<ConfigError>(fit, {"training_step", "3 elements"});
  model->loss = torch::zeros({1});
  test::expect_error<ConfigError>(fit, {"training_step", "no parameter"});
}

struct WithDropoutImpl : LineImpl {
  WithDropoutImpl() {
    register_module("frozen", frozen);
    register_module("dropout", dropout);
    frozen->eval();
  }
  void validation_step(const Example&, StepContext&) override {
    training_in_validation = is_training() || dropout->is_training();
  }
  torch::nn::Dropout frozen, dropout;
  bool training_in_validation = true;
};
TORCH_MODULE(WithDropout);

TEST_F(TrainerTest, RestoresEverySubmodulesOwnModeAfterValidation) {
  WithDropout model;
  Trainer(options()).fit(model, batches({1}), batches({1}));
  EXPECT_FALSE(model->training_in_validation);
  EXPECT_TRUE(model->is_training());
  EXPECT_TRUE(model->dropout->is_training());
  EXPECT_FALSE(model->frozen->is_training());
}

TEST_F(TrainerTest, TestAfterFitSeesTheTrainedWeights) {
  Line start;
  write_weights(folder_ / "start", {{"weight", torch::full({1}, 5.0F)}});
  auto chosen = options();
  chosen.run.init_weights = folder_ / "start";
  Trainer trainer(chosen);
  trainer.fit(start, batches({1}));
  EXPECT_EQ(start->weight.item<float>(), 4);
  trainer.validate(start, batches({1}));
  EXPECT_EQ(start->weight.item<float>(), 4);
}

TEST_F(TrainerTest, NamesTheStepThatIsMissing) {
  Line model;
  test::expect_error<ConfigError>([&] { Trainer(options()).test(model, batches({1})); }, {"test_step"});
}

TEST_F(TrainerTest, ChecksOptionsSetInCode) {
  auto chosen = options();
  chosen.accumulate_grad_batches = 0;
  test::expect_error<ConfigError>([&] { Trainer trainer(chosen); }, {"accumulate_grad_batches", "0", ">= 1"});
}

TEST(BatchLimitTest, OneIsABatchAndOnePointZeroIsAll) {
  EXPECT_EQ(BatchLimit::parse("1")->apply(10, "x"), 1);
  EXPECT_EQ(BatchLimit::parse("1.0")->apply(10, "x"), 10);
  EXPECT_EQ(BatchLimit::parse("0.55")->apply(10, "x"), 5);
  for (const char* text : {"1", "1.0", "0.25", "0", "7"}) EXPECT_EQ(BatchLimit::parse(text)->print(), text);
  EXPECT_EQ(BatchLimit::parse(BatchLimit(1.0 / 3).print())->apply(3, "x"), 1);
  EXPECT_EQ(BatchLimit::parse(BatchLimit(1e-7).print())->print(), BatchLimit(1e-7).print());
  EXPECT_EQ(BatchLimit(10.0).print(), "10");
  EXPECT_EQ(BatchLimit(10.0).apply(12, "x"), 10);
  EXPECT_THROW((void)BatchLimit(1.5).apply(12, "x"), ConfigError);
  for (const char* text : {"-1", "1.5", "many", "", "nan"}) EXPECT_FALSE(BatchLimit::parse(text)) << text;
}

}  // namespace
}  // namespace lockstep
