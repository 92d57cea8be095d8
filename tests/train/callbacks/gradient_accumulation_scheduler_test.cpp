// Accumulation windows by epoch, from a callback.
#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::SlopeTest;
using Steps = AccumulationSchedule::Steps;

class GradientAccumulationSchedulerTest : public SlopeTest {
 protected:
  static std::shared_ptr<Callback> scheduler(Steps steps) {
    return std::make_shared<GradientAccumulationScheduler>(std::move(steps));
  }
};

TEST_F(GradientAccumulationSchedulerTest, ChangesWindowsFromItsEpochsOn) {
  auto chosen = options(3);
  chosen.callbacks = {scheduler({{1, 2}, {2, 4}})};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(4));
  EXPECT_EQ(trainer.global_step(), 4 + 2 + 1);
  EXPECT_THAT(model_->steps_of_windows, ElementsAre(0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6));
  trainer.fit(model_, batches(4));
  EXPECT_EQ(trainer.global_step(), 4 + 2 + 1);
}

TEST_F(GradientAccumulationSchedulerTest, ComesWithAModuleTooAndGoesWithIt) {
  struct Own : testing::SlopeImpl {
    explicit Own(int length) : window(length) {}
    std::vector<std::shared_ptr<Callback>> configure_callbacks() override {
      return {scheduler({{0, window}})};
    }
    int window;
  };
  Trainer trainer(options(1));
  trainer.fit(std::make_shared<Own>(4), batches(4));
  EXPECT_EQ(trainer.global_step(), 1);
  trainer.fit(std::make_shared<Own>(2), batches(4));
  EXPECT_EQ(trainer.global_step(), 2);
  trainer.fit(model_, batches(4));
  EXPECT_EQ(trainer.global_step(), 4);
}

// Behind epoch 0 windows of 4 come into effect, behind epoch 1 are asked for windows of 2.
struct ChangesWindows : Callback {
  void on_train_epoch_end(TrainContext& context) override {
    if (context.current_epoch() < 2)
      context.set_accumulate_grad_batches(context.current_epoch() == 0 ? 4 : 2);
    save(context, "ended");
  }
  void on_validation_end(TrainContext& context) override { save(context, "validated"); }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    if (step.current_epoch() == 1 && step.batch_idx() == 2) save(step, "inside");
  }
  void save(TrainContext& context, const std::string& name) const {
    if (!folder.empty()) context.save_checkpoint(folder / (name + std::to_string(context.current_epoch())));
  }
  std::filesystem::path folder = {};
};

TEST_F(GradientAccumulationSchedulerTest, WindowsThatCallbacksHaveAskedForAreResumed) {
  auto chosen = options(3);
  const auto saving = std::make_shared<ChangesWindows>();
  saving->folder = folder_ / "saved";
  chosen.callbacks = {saving};
  Trainer whole(chosen);
  whole.fit(model_, batches(4), batches(1));
  EXPECT_EQ(whole.global_step(), 4 + 1 + 2);
  for (const std::string name : {"validated0", "ended0", "inside1", "validated1", "ended1"}) {
    chosen.callbacks = {std::make_shared<ChangesWindows>()};
    testing::Slope model;
    Trainer resumed(chosen);
    resumed.fit(model, batches(4), batches(1), folder_ / "saved" / name);
    EXPECT_EQ(resumed.global_step(), 4 + 1 + 2) << name;
    EXPECT_TRUE(torch::equal(model->weight, model_->weight)) << name;
  }
  chosen.callbacks = {};
  chosen.accumulate_grad_batches = 2;
  ::testing::internal::CaptureStderr();
  Trainer other(chosen);
  other.fit(testing::Slope(), batches(4), batches(1), folder_ / "saved" / "validated1");
  EXPECT_EQ(other.global_step(), 4 + 1 + 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("accumulate_grad_batches was 1 when the run began, 4 in the checkpoint"));
}

TEST_F(GradientAccumulationSchedulerTest, RefusesAnotherScheduleBesideIt) {
  auto chosen = options(1);
  chosen.accumulate_grad_batches = 2;
  chosen.callbacks = {scheduler({{0, 4}})};
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(4)); },
                                  {"accumulate_grad_batches", "one of the two"});
}

TEST_F(GradientAccumulationSchedulerTest, OptionsAreChecked) {
  test::expect_error<ConfigError>([] { scheduler({}); }, {"scheduling"});
  test::expect_error<ConfigError>([] { scheduler({{-1, 2}}); }, {"epoch", "-1"});
  test::expect_error<ConfigError>([] { scheduler({{0, 0}}); }, {"micro-batches", ">= 1"});
}

}  // namespace
}  // namespace lockstep
