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

TEST_F(GradientAccumulationSchedulerTest, ComesWithAModuleToo) {
  struct Own : testing::SlopeImpl {
    std::vector<std::shared_ptr<Callback>> configure_callbacks() override { return {scheduler({{0, 4}})}; }
  };
  Trainer trainer(options(1));
  trainer.fit(std::make_shared<Own>(), batches(4));
  EXPECT_EQ(trainer.global_step(), 1);
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
