// A model that runs out of memory with batches above a size, and data whose batches have any size.
#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "support/temporary_folder.h"

namespace lockstep::testing {

inline constexpr auto kNoLimit = std::numeric_limits<std::int64_t>::max();

/// What LibTorch throws where an allocation on the CPU fails: the largest there can be does.
[[noreturn]] inline void run_out_of_memory() {
  at::empty({std::int64_t{1} << 58});
  throw std::logic_error("this machine has an exabyte");
}

/// Dropout draws random numbers, `seen` is a buffer, SGD with momentum has state.
struct HungryImpl : Module<Example> {
  HungryImpl() {
    register_module("net", net);
    seen = register_buffer("seen", torch::zeros({}));
  }

  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    sizes.push_back(batch.data.size(0));
    samples.update(torch::tensor(static_cast<double>(batch.data.size(0))));
    step.log("samples", samples);
    eat(batch);
    ++steps;
    seen += batch.data.size(0);
    const auto loss = net->forward(batch.data).pow(2).mean();
    step.log("train_loss", loss, {.on_epoch = true});
    return loss;
  }
  void validation_step(const Example& batch, StepContext& step) override {
    eat(batch);
    step.log("val_loss", net->forward(batch.data).pow(2).mean());
  }
  void test_step(const Example& batch, StepContext&) override { eat(batch); }
  torch::Tensor predict_step(const Example& batch, StepContext&) override {
    eat(batch);
    return batch.data;
  }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    if (!save_in.empty()) step.save_checkpoint(save_in);
  }
  Optimizers configure_optimizers() override {
    return {.optimizer = SGD{.lr = 0.1, .momentum = 0.9},
            .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 1, .gamma = 0.5}}};
  }
  StateTree state() const override {
    StateTree state;
    state.set("steps", steps);
    return state;
  }
  void load_state(const StateTree& state) override { steps = state.get<std::int64_t>("steps"); }

  void eat(const Example& batch) const {
    if (batch.data.size(0) <= fits) return;
    if (message == "cpu") run_out_of_memory();
    if (message.starts_with("CUDA")) TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    throw std::runtime_error(message);
  }

  torch::nn::Sequential net{torch::nn::Linear(2, 4), torch::nn::Dropout(0.5), torch::nn::Linear(4, 1)};
  torch::Tensor seen;
  std::int64_t fits = kNoLimit;
  std::string message = "cpu";
  std::int64_t steps = 0;           // a counter that is state
  std::vector<std::int64_t> sizes;  // of all batches so far
  metrics::Sum samples;             // of the epoch
  std::filesystem::path save_in;
};
TORCH_MODULE(Hungry);

class HungryTest : public ::testing::Test {
 protected:
  TrainerOptions options(std::vector<std::shared_ptr<Callback>> callbacks = {}) {
    TrainerOptions found{.max_epochs = 1, .num_sanity_val_steps = 0, .enable_progress_bar = false};
    found.enable_model_summary = false;
    found.log_every_n_steps = 1;
    found.callbacks = std::move(callbacks);
    found.run.run_dir = folder_ / "run";
    found.run.seed_everything = 3;
    return found;
  }
  static DatasetPtr<Example> rows(std::int64_t count) {
    return tensor_dataset(torch::arange(2.0 * static_cast<double>(count)).reshape({count, 2}) / 100);
  }
  static std::shared_ptr<DataModule<Example>> data(std::int64_t count, std::int64_t batch_size = 1) {
    return datasets_module<Example>(
        {.train = rows(count), .val = rows(8), .test = rows(count), .predict = rows(count)},
        {.batch_size = batch_size});
  }
  static Hungry seeded_model() {
    torch::manual_seed(5);
    return Hungry();
  }

  test::TemporaryFolder folder_;
};

}  // namespace lockstep::testing
