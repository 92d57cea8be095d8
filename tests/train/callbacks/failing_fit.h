// A fit whose weight counts its steps, and that fails where it is told to.
#pragma once

#include <stdexcept>
#include <string>

#include <lockstep/lockstep.h>

namespace lockstep::testing {

/// Where a fit fails, and on which ranks.
struct Failure {
  std::int64_t batch = 0;
  int rank = -1;  ///< -1: on all
  enum class Place { kTrainingStep, kBackward, kBatchEnd, kValidation } place = Place::kTrainingStep;
};

struct CountImpl : Module<Example> {
  CountImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    fail_at(Failure::Place::kTrainingStep, step);
    return -(weight * batch.data.mean()).sum();  // adds 1 with each step
  }
  void on_after_backward(StepContext& step) override { fail_at(Failure::Place::kBackward, step); }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    fail_at(Failure::Place::kBatchEnd, step);
  }
  void validation_step(const Example&, StepContext& step) override {
    fail_at(Failure::Place::kValidation, step);
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1.0}}; }

  void fail_at(Failure::Place place, const StepContext& step) const {
    const bool is_here = failure && place == failure->place && step.batch_idx() == failure->batch;
    if (is_here && (failure->rank < 0 || failure->rank == step.global_rank()))
      throw std::runtime_error("scripted");
  }

  std::optional<Failure> failure;
  torch::Tensor weight;
};
TORCH_MODULE(Count);

inline Loader<Example> ones(std::int64_t batches) {
  return loader(tensor_dataset(torch::ones({batches, 1})), {.batch_size = 1});
}

inline TrainerOptions quiet_options(const std::filesystem::path& run_dir,
                                    std::vector<std::shared_ptr<Callback>> callbacks) {
  TrainerOptions options{.max_epochs = 1, .num_sanity_val_steps = 0, .enable_progress_bar = false};
  options.enable_model_summary = false;
  options.run.run_dir = run_dir;
  options.callbacks = std::move(callbacks);
  return options;
}

inline double weight_in(const std::filesystem::path& folder) {
  return Checkpoint(folder).entry("model").get<at::Tensor>("weight").item<double>();
}

}  // namespace lockstep::testing
