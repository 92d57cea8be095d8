// A model whose gradients can be worked out by hand, and what a Trainer needs to run it.
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "support/temporary_folder.h"

namespace lockstep::testing {

// One weight w; the loss of a batch is w * mean(x), so its gradient is mean(x). Validation logs its next
// value of `losses` as val_loss.
struct SlopeImpl : Module<Example> {
  SlopeImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    ++training_steps;
    steps_of_windows.push_back(step.global_step());
    const auto loss = (weight * batch.data.mean()).sum();
    step.log("train_loss", loss, {.on_epoch = true});
    return loss;
  }
  void validation_step(const Example&, StepContext& step) override {
    if (step.stage() == Stage::kFit && step.batch_idx() == 0) validated_after.push_back(training_steps);
    if (losses.empty()) return;
    const auto number = std::min(validated_after.size() - 1, losses.size() - 1);
    step.log("val_loss", losses[number]);
  }
  torch::Tensor predict_step(const Example& batch, StepContext&) override { return batch.data * 2; }
  void test_step(const Example& batch, StepContext& step) override { step.log("mean", batch.data.mean()); }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1.0}}; }

  torch::Tensor weight;
  int training_steps = 0;
  std::vector<std::int64_t> steps_of_windows;  // global_step at each micro-batch
  std::vector<int> validated_after;            // training steps before each validation of fit
  std::vector<double> losses;
};
TORCH_MODULE(Slope);

class SlopeTest : public ::testing::Test {
 protected:
  TrainerOptions options(std::int64_t max_epochs = 1) {
    TrainerOptions found{.max_epochs = max_epochs, .num_sanity_val_steps = 0, .enable_progress_bar = false};
    found.enable_model_summary = false;
    found.run.run_dir = folder_ / "run";
    return found;
  }
  // Batches of one sample each.
  static Loader<Example> batches(std::int64_t count) {
    return loader(tensor_dataset(torch::ones({count, 1})), {.batch_size = 1});
  }
  std::filesystem::path run_dir() const { return folder_ / "run"; }

  test::TemporaryFolder folder_;
  Slope model_;
};

}  // namespace lockstep::testing
