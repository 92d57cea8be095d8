// What happens every n optimizer steps, where a batch does several of them.
#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/model_checkpoint_fit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// Manual optimisation: batch i of an epoch does steps[i] steps, those behind the last as many.
struct ManySteps : testing::SlopeImpl {
  explicit ManySteps(std::vector<int> steps) : steps_of_batches(std::move(steps)) {}
  torch::Tensor training_step(const Example&, StepContext& step) override {
    const auto batch = std::min(static_cast<std::size_t>(step.batch_idx()), steps_of_batches.size() - 1);
    for (int i = 0; i < steps_of_batches[batch]; ++i) {
      auto optimizer = step.manual_optimizer();
      optimizer.zero_grad();
      step.manual_backward(weight.sum());
      optimizer.step();
    }
    return {};
  }
  bool automatic_optimization() const override { return false; }
  std::vector<int> steps_of_batches;
};

class StepIntervals : public testing::ModelCheckpointTest {
 protected:
  std::vector<std::int64_t> saved_steps() const {
    std::vector<std::int64_t> steps;
    for (const auto& name : kept()) steps.push_back(std::stoll(name.substr(5)));
    std::ranges::sort(steps);
    return steps;
  }
};

// Eight batches in each of two epochs, which end in two processes.
TEST_F(StepIntervals, AreAtLeastNStepsSinceTheLast) {
  const std::vector<std::tuple<std::vector<int>, std::int64_t, std::vector<std::int64_t>>> vectors{
      {{1}, 3, {3, 6, 9, 12, 15}},
      {{1, 2}, 2, {3, 5, 7, 9, 11, 13, 15, 18, 20, 22, 24, 26, 28, 30}},
      {{2}, 2, {2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32}},
      {{3}, 4, {6, 12, 18, 24, 30, 36, 42, 48}},
      {{0, 1}, 4, {4, 8, 12}},
      {{3, 1}, 5, {5, 10, 15, 20}}};
  for (const auto& [steps, every, expected] : vectors) {
    SCOPED_TRACE(every);
    fs::remove_all(run_dir());
    for (const std::int64_t epochs : {1, 2}) {
      auto chosen = options(epochs);
      chosen.callbacks = {std::make_shared<ModelCheckpoint>(
          ModelCheckpointOptions{.filename = "{step}", .save_top_k = -1, .every_n_train_steps = every})};
      Trainer(chosen).fit(std::make_shared<ManySteps>(steps), batches(8), {}, epochs == 2 ? "last" : "");
    }
    EXPECT_EQ(saved_steps(), expected);
  }
}

TEST_F(StepIntervals, HoldForCheckpointsInMemory) {
  auto chosen = options();
  const auto memory = folder_ / "memory";
  chosen.callbacks = {
      std::make_shared<LocalCheckpoint>(LocalCheckpointOptions{.every_n_train_steps = 2, .folder = memory})};
  chosen.run.fault = {.kind = FaultKind::kThrow, .step = 11};
  test::expect_error<std::runtime_error>(
      [&] { Trainer(chosen).fit(std::make_shared<ManySteps>(std::vector{1, 2}), batches(8)); }, {"injected"});
  std::vector<std::string> kept_steps;
  for (const auto& entry : fs::recursive_directory_iterator(memory))
    if (entry.path().filename().string().starts_with("step=")) kept_steps.push_back(entry.path().filename());
  EXPECT_THAT(kept_steps, ElementsAre("step=11"));
}

TEST_F(StepIntervals, HoldForAverages) {
  const auto averages =
      std::make_shared<EMAWeightAveraging>(EMAWeightAveragingOptions{.update_every_n_steps = 2});
  auto chosen = options();
  chosen.callbacks = {averages};
  Trainer(chosen).fit(std::make_shared<ManySteps>(std::vector{2}), batches(8));
  EXPECT_EQ(averages->num_averaged(), 8);
}

}  // namespace
}  // namespace lockstep
