// The mean of the weights of the last epochs, its learning rates, and BatchNorm afterwards.
#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::Slope;
using testing::SlopeTest;

class StochasticWeightAveragingTest : public SlopeTest {
 protected:
  // Notes the learning rate of each epoch.
  struct Rates final : Callback {
    void on_train_batch_start(StepContext& step) override {
      rates.push_back(step.optimizer().groups().front().lr);
    }
    std::vector<double> rates;
  };

  static std::shared_ptr<StochasticWeightAveraging> swa(StochasticWeightAveragingOptions options) {
    return std::make_shared<StochasticWeightAveraging>(std::move(options));
  }
  TrainerOptions with(const std::shared_ptr<Callback>& callback, std::int64_t max_epochs) {
    auto chosen = options(max_epochs);
    chosen.callbacks = {callback, rates_};
    return chosen;
  }
  static StochasticWeightAveragingOptions from_the_second() {
    return {.swa_lrs = {0.5}, .swa_epoch_start = 2, .annealing_epochs = 2, .annealing_strategy = "linear"};
  }

  std::shared_ptr<Rates> rates_ = std::make_shared<Rates>();
};

// Weights at the begin of epochs: 0, -1, -2, -2.75, -3.25.
TEST_F(StochasticWeightAveragingTest, AveragesFromItsEpochOn) {
  const auto callback = swa(from_the_second());
  Trainer(with(callback, 4)).fit(model_, batches(1));
  EXPECT_THAT(rates_->rates, ElementsAre(1, 1, 0.75, 0.5));
  EXPECT_EQ(callback->num_averaged(), 3);
  EXPECT_FLOAT_EQ(model_->weight.item<float>(), (-1 - 2 - 2.75F) / 3);
  const Checkpoint last(run_dir() / "checkpoints" / "last.ckpt");
  EXPECT_FLOAT_EQ(last.entry("model").get<at::Tensor>("weight").item<float>(), (-1 - 2 - 2.75F) / 3);
  const auto& state = last.entry("stochastic_weight_averaging");
  EXPECT_EQ(state.get<StateTree>("current_model_state").get<at::Tensor>("weight").item<float>(), -3.25F);
}

TEST_F(StochasticWeightAveragingTest, AFractionIsOneOfAllEpochs) {
  const auto callback = swa({.swa_lrs = {1.0}, .swa_epoch_start = 0.5});
  Trainer(with(callback, 6)).fit(model_, batches(1));
  EXPECT_EQ(callback->num_averaged(), 4);  // 0.5 * 6 counted from 1: epochs 2 to 5
  auto endless = with(callback, -1);
  endless.max_steps = 3;
  test::expect_error<ConfigError>([&] { Trainer(endless).fit(model_, batches(1)); },
                                  {"swa_epoch_start", "max_epochs"});
}

// A Slope whose rate is cut to a tenth with each epoch.
struct ScheduledImpl : testing::SlopeImpl {
  Optimizers configure_optimizers() override {
    return {.optimizer = SGD{.lr = 1.0}, .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 1}}};
  }
};

TEST_F(StochasticWeightAveragingTest, TakesThePlaceOfTheSchedule) {
  const auto model = std::make_shared<ScheduledImpl>();
  Trainer(with(swa({.swa_lrs = {0.5}, .swa_epoch_start = 3, .annealing_epochs = 1}), 5))
      .fit(model, batches(1));
  EXPECT_THAT(rates_->rates, ElementsAre(1, 0.1, ::testing::DoubleEq(0.01), 0.5, 0.5));
}

TEST_F(StochasticWeightAveragingTest, GoesOnFromCheckpoints) {
  const auto model = std::make_shared<ScheduledImpl>();
  Trainer(with(swa(from_the_second()), 5)).fit(model, batches(2));
  const auto whole_rates = std::exchange(rates_->rates, {});
  for (const std::int64_t epochs : {1, 3}) {
    auto first = with(swa(from_the_second()), epochs);
    Trainer(first).fit(std::make_shared<ScheduledImpl>(), batches(2));
    rates_->rates.clear();
    std::filesystem::rename(run_dir() / "checkpoints" / "last.ckpt", folder_ / "from.ckpt");
    const auto resumed = std::make_shared<ScheduledImpl>();
    Trainer(with(swa(from_the_second()), 5)).fit(resumed, batches(2), std::nullopt, folder_ / "from.ckpt");
    EXPECT_EQ(resumed->weight.item<float>(), model->weight.item<float>()) << epochs;
    const std::vector<double> rest(whole_rates.begin() + 2 * epochs, whole_rates.end());
    EXPECT_EQ(rates_->rates, rest) << epochs;
    std::filesystem::remove_all(folder_ / "from.ckpt");
  }
}

// A job that has ended is started again.
TEST_F(StochasticWeightAveragingTest, AFinishedRunThatIsRunAgainEndsWithItsAverages) {
  const auto last = run_dir() / "checkpoints" / "last.ckpt";
  Trainer first(with(swa(from_the_second()), 4));
  first.fit(model_, batches(1));
  const auto average = (-1 - 2 - 2.75F) / 3;
  first.fit(model_, batches(1), std::nullopt, "last");  // of the same Trainer
  EXPECT_FLOAT_EQ(model_->weight.item<float>(), average);
  model_ = testing::Slope();
  auto chosen = with(swa(from_the_second()), 4);
  chosen.run.save_weights = folder_ / "weights.safetensors";
  Trainer(chosen).fit(model_, batches(1), std::nullopt, "last");
  EXPECT_FLOAT_EQ(model_->weight.item<float>(), average);
  EXPECT_FLOAT_EQ(Checkpoint(last).entry("model").get<at::Tensor>("weight").item<float>(), average);
  load_weights(folder_ / "weights.safetensors", *model_);
  EXPECT_FLOAT_EQ(model_->weight.item<float>(), average);
}

// Normalizes its data as they come.
struct NormImpl : testing::SlopeImpl {
  NormImpl() { register_module("norm", norm); }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    step.log("loss", 1.0);
    ++training_steps;
    return (weight * norm->forward(batch.data)).sum();
  }
  torch::nn::BatchNorm1d norm{1};
};

TEST_F(StochasticWeightAveragingTest, MeasuresBatchNormAnew) {
  const auto model = std::make_shared<NormImpl>();
  const auto data = torch::tensor({0.0F, 2.0F, 10.0F, 14.0F}).view({4, 1});
  const auto train = loader(tensor_dataset(data), {.batch_size = 2});
  Trainer trainer(with(swa({.swa_lrs = {0.1}, .swa_epoch_start = 1}), 3));
  trainer.fit(model, train);
  EXPECT_EQ(model->training_steps, 3 * 2 + 2);
  EXPECT_EQ(trainer.global_step(), 6);
  EXPECT_FLOAT_EQ(model->norm->running_mean.item<float>(), 6.5F);  // of 1 and 12
  EXPECT_FLOAT_EQ(model->norm->running_var.item<float>(), 5);      // of 2 and 8
  EXPECT_EQ(model->norm->num_batches_tracked.item<int>(), 2);
  EXPECT_EQ(model->norm->options.momentum(), 0.1);
  EXPECT_EQ(trainer.callback_metrics().at("loss"), 1.0);
}

// Its loss holds a gradient.
struct PenaltyImpl final : NormImpl {
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    const auto loss = NormImpl::training_step(batch, step);
    const auto gradients = torch::autograd::grad({loss}, {weight}, {}, std::nullopt, /*create_graph=*/true);
    return loss + gradients.front().pow(2).sum();
  }
};

TEST_F(StochasticWeightAveragingTest, MeasuresBatchNormOfStepsThatNeedGradients) {
  const auto model = std::make_shared<PenaltyImpl>();
  const auto train = loader(tensor_dataset(torch::arange(4.0F).view({4, 1})), {.batch_size = 2});
  Trainer(with(swa({.swa_lrs = {0.1}, .swa_epoch_start = 1}), 2)).fit(model, train);
  EXPECT_EQ(model->training_steps, 2 * 2 + 2);
  EXPECT_EQ(model->norm->num_batches_tracked.item<int>(), 2);
}

TEST_F(StochasticWeightAveragingTest, OptionsAreChecked) {
  test::expect_error<ConfigError>([] { swa({}); }, {"swa_lrs"});
  test::expect_error<ConfigError>([] { swa({.swa_lrs = {0.1, -1}}); }, {"swa_lrs", "-1"});
  test::expect_error<ConfigError>([] { swa({.swa_lrs = {0.1}, .swa_epoch_start = 0}); }, {"swa_epoch_start"});
  test::expect_error<ConfigError>([] { swa({.swa_lrs = {0.1}, .swa_epoch_start = 1.5}); },
                                  {"swa_epoch_start", "[0, 1]"});
  test::expect_error<ConfigError>([] { swa({.swa_lrs = {0.1}, .annealing_epochs = -1}); },
                                  {"annealing_epochs"});
  test::expect_error<ConfigError>([] { swa({.swa_lrs = {0.1}, .annealing_strategy = "exp"}); }, {"exp"});
  test::expect_error<ConfigError>(
      [&] {
        Trainer(with(swa({.swa_lrs = {0.1, 0.2}, .swa_epoch_start = 1}), 1)).fit(model_, batches(1));
      },
      {"swa_lr", "1 groups"});
}

}  // namespace
}  // namespace lockstep
