// Averages of weights: their values, who holds them when, and what checkpoints have of them.
#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::Slope;
using testing::SlopeTest;

// After its k-th step the weight of a Slope is -k.
class WeightAveragingTest : public SlopeTest {
 protected:
  // Notes the weight in validations, and saves in the first one.
  struct Witness final : Callback {
    explicit Witness(std::filesystem::path folder_) : folder(std::move(folder_)) {}
    void on_validation_batch_end(StepContext& step) override {
      if (step.stage() != Stage::kFit) return;
      weights.push_back(step.module().parameters().front().item<float>());
      if (weights.size() == 1 && !folder.empty()) step.save_checkpoint(folder);
    }
    std::filesystem::path folder;
    std::vector<float> weights;
  };

  TrainerOptions with(const std::shared_ptr<Callback>& callback, std::int64_t max_epochs = 1) {
    auto chosen = options(max_epochs);
    witness_ = std::make_shared<Witness>(folder_ / "inside.ckpt");
    chosen.callbacks = {callback, witness_};
    return chosen;
  }
  static std::shared_ptr<EMAWeightAveraging> ema(EMAWeightAveragingOptions options) {
    return std::make_shared<EMAWeightAveraging>(options);
  }
  float weight() const { return model_->weight.item<float>(); }
  std::filesystem::path last() const { return run_dir() / "checkpoints" / "last.ckpt"; }
  static float weight_in(const std::filesystem::path& folder, const std::string& entry) {
    return Checkpoint(folder).entry(entry).get<at::Tensor>("weight").item<float>();
  }

  std::shared_ptr<Witness> witness_;
};

TEST_F(WeightAveragingTest, FollowsTheWeightsExponentially) {
  const auto callback = ema({.decay = 0.5});
  Trainer(with(callback)).fit(model_, batches(3), batches(1));
  EXPECT_EQ(weight(), -2.25F);  // of -1, -2, -3
  EXPECT_EQ(callback->num_averaged(), 3);
  EXPECT_THAT(witness_->weights, ElementsAre(-2.25F));
}

TEST_F(WeightAveragingTest, IsThePlainMeanUnlessToldOtherwise) {
  Trainer(with(std::make_shared<WeightAveraging>())).fit(model_, batches(4));
  EXPECT_EQ(weight(), -2.5F);
}

TEST_F(WeightAveragingTest, TakesFunctionsOfOnesOwn) {
  const auto largest = [](at::TensorList averages, at::TensorList weights, std::int64_t) {
    at::_foreach_maximum_(averages, weights);
  };
  Trainer(with(std::make_shared<WeightAveraging>(WeightAveragingOptions{.multi_avg_fn = largest})))
      .fit(model_, batches(4));
  EXPECT_EQ(weight(), -1);
}

TEST_F(WeightAveragingTest, UpdatesWhenADerivedClassSaysSo) {
  struct AtEpochEnds final : WeightAveraging {
    bool should_update(std::optional<std::int64_t>, std::optional<std::int64_t> epoch_idx) const override {
      return epoch_idx.has_value();
    }
  };
  Trainer(with(std::make_shared<AtEpochEnds>(), 2)).fit(model_, batches(2));
  EXPECT_EQ(weight(), -3);  // of -2, -4
}

TEST_F(WeightAveragingTest, ChoosesStepsAndEpochsAsLightning) {
  const EMAWeightAveraging every({.update_every_n_steps = 3, .update_starting_at_step = 4});
  for (const std::int64_t step : {0, 3, 4, 5, 7, 8}) EXPECT_FALSE(every.should_update(step, {})) << step;
  for (const std::int64_t step : {6, 9}) EXPECT_TRUE(every.should_update(step, {})) << step;
  EXPECT_FALSE(every.should_update({}, 100));
  const EMAWeightAveraging epochs({.update_every_n_steps = 0, .update_starting_at_epoch = 2});
  EXPECT_FALSE(epochs.should_update(6, {}));
  EXPECT_FALSE(epochs.should_update({}, 1));
  EXPECT_TRUE(epochs.should_update({}, 2));
}

TEST_F(WeightAveragingTest, CountsOptimizerStepsNotMicroBatches) {
  const auto callback = ema({.decay = 0.5});
  auto chosen = with(callback);
  chosen.accumulate_grad_batches = 2;
  Trainer(chosen).fit(model_, batches(4));
  EXPECT_EQ(callback->num_averaged(), 2);
  EXPECT_EQ(weight(), -1.5F);
}

TEST_F(WeightAveragingTest, LeavesWeightsAloneBeforeTheFirstUpdate) {
  const auto callback = ema({.update_starting_at_step = 100});
  Trainer(with(callback)).fit(model_, batches(3), batches(1));
  EXPECT_EQ(weight(), -3);
  EXPECT_THAT(witness_->weights, ElementsAre(-3));
  EXPECT_EQ(Checkpoint(last()).shared().contains("current_model_state"), false);
}

TEST_F(WeightAveragingTest, AveragesAreTheModelOfCheckpoints) {
  Trainer trainer(with(ema({.decay = 0.5})));
  trainer.fit(model_, batches(3), batches(1));
  for (const auto& folder : {last(), folder_ / "inside.ckpt"}) {
    EXPECT_EQ(weight_in(folder, "model"), -2.25F);
    EXPECT_EQ(weight_in(folder, "current_model_state"), -3);
  }
  trainer.save_checkpoint(folder_ / "weights.ckpt", true);
  EXPECT_EQ(weight_in(folder_ / "weights.ckpt", "model"), -2.25F);
  EXPECT_FALSE(Checkpoint(folder_ / "weights.ckpt").shared().contains("current_model_state"));
}

TEST_F(WeightAveragingTest, GoesOnFromTheEndAndFromInsideAValidation) {
  Trainer(with(ema({.decay = 0.7}), 2)).fit(model_, batches(3), batches(2));
  const auto whole = weight();
  for (const auto* name : {"last", "inside"}) {
    model_ = Slope();
    Trainer(with(ema({.decay = 0.7}), 1)).fit(model_, batches(3), batches(2));
    const auto from = std::string(name) == "last" ? last() : folder_ / "inside.ckpt";
    std::filesystem::rename(from, folder_ / "from.ckpt");
    model_ = Slope();
    auto chosen = with(ema({.decay = 0.7}), 2);
    witness_->folder.clear();
    Trainer(chosen).fit(model_, batches(3), batches(2), folder_ / "from.ckpt");
    EXPECT_EQ(weight(), whole) << name;
    EXPECT_NE(witness_->weights.front(), -3) << name;
    std::filesystem::remove_all(folder_ / "from.ckpt");
  }
}

// A job that has ended is started again.
TEST_F(WeightAveragingTest, AFinishedRunThatIsRunAgainEndsWithItsAverages) {
  for (const bool cut : {false, true}) {
    auto chosen = with(ema({.decay = 0.5}));
    if (cut) chosen.max_steps = 3;
    for (const auto* from : {"", "last"}) {
      model_ = Slope();
      chosen.callbacks = {ema({.decay = 0.5})};
      Trainer(chosen).fit(model_, batches(cut ? 5 : 3), batches(1), from);
      EXPECT_EQ(weight(), -2.25F) << cut << from;
      EXPECT_EQ(weight_in(last(), "model"), -2.25F);
      EXPECT_EQ(weight_in(last(), "current_model_state"), -3);
    }
  }
}

TEST_F(WeightAveragingTest, BeginsAnewFromACheckpointWithoutAverages) {
  Trainer(options(1)).fit(model_, batches(2));
  std::filesystem::rename(last(), folder_ / "plain.ckpt");
  const auto callback = ema({.decay = 0.5});
  ::testing::internal::CaptureStderr();
  Trainer(with(callback, 2)).fit(model_, batches(2), std::nullopt, folder_ / "plain.ckpt");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("begin anew"));
  EXPECT_EQ(callback->num_averaged(), 2);
  EXPECT_EQ(weight(), -3.5F);  // of -3, -4
}

// A model with a counter and a number that change in each step.
struct CountingImpl : testing::SlopeImpl {
  CountingImpl() {
    count = register_buffer("count", torch::zeros({}, torch::kLong));
    number = register_buffer("number", torch::zeros({}));
  }
  void on_before_optimizer_step(StepContext&) override {
    count += 1;
    number += 1;
  }
  torch::Tensor count, number;
};

TEST_F(WeightAveragingTest, AveragesBuffersOfRealNumbersUnlessToldNotTo) {
  for (const bool use_buffers : {true, false}) {
    const auto model = std::make_shared<CountingImpl>();
    Trainer(with(ema({.use_buffers = use_buffers, .decay = 0.5}))).fit(model, batches(3));
    EXPECT_EQ(model->count.item<int>(), 3);
    EXPECT_EQ(model->number.item<float>(), use_buffers ? 2.25F : 3.0F);
  }
}

TEST_F(WeightAveragingTest, OptionsAreChecked) {
  test::expect_error<ConfigError>([] { ema({.decay = 1.5}); }, {"decay", "1.5"});
  test::expect_error<ConfigError>([] { ema({.update_every_n_steps = -1}); }, {"update_every_n_steps", "-1"});
}

}  // namespace
}  // namespace lockstep
