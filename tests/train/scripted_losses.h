// Runs whose metrics are written down before: random ones, for tests of what monitors.
#pragma once

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "train/model_checkpoint_fit.h"

namespace lockstep::testing {

// The rate is the gradient: w is minus the sum of the rates. Knows across checkpoints how often it was
// validated.
struct ScriptedLossesImpl : Module<Example> {
  ScriptedLossesImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    const auto loss = (weight * batch.data.mean()).sum();
    step.log("train_loss", trained % 3);
    ++trained;
    return loss;
  }
  void validation_step(const Example&, StepContext& step) override { step.log("val_loss", value()); }
  void on_validation_end(TrainContext& context) override { validated += context.stage() == Stage::kFit; }
  double value() const { return losses[std::min<std::size_t>(validated, losses.size() - 1)]; }
  Optimizers configure_optimizers() override {
    return {.optimizer = SGD{.lr = 1.0},
            .lr_scheduler = LRScheduler{.scheduler = ReduceLROnPlateau{.factor = 0.5, .patience = 0},
                                        .monitor = "val_loss"}};
  }
  StateTree state() const override {
    StateTree state;
    state.set("trained", trained);
    state.set("validated", static_cast<std::int64_t>(validated));
    return state;
  }
  void load_state(const StateTree& state) override {
    trained = state.get<std::int64_t>("trained");
    validated = static_cast<std::size_t>(state.get<std::int64_t>("validated"));
  }

  torch::Tensor weight;
  std::int64_t trained = 0;
  std::size_t validated = 0;
  std::vector<double> losses = {1};
};
TORCH_MODULE(ScriptedLosses);

using Random = std::mt19937;

inline std::int64_t one_of(Random& random, std::vector<std::int64_t> values) {
  return values[random() % values.size()];
}

inline std::vector<double> random_losses(Random& random, std::size_t count) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double values[] = {0, 1, 1, 2, 3, std::nan(""), kInfinity, -kInfinity};
  std::vector<double> losses;
  while (losses.size() < count) losses.push_back(values[random() % std::size(values)]);
  return losses;
}

class MonitoredRuns : public ModelCheckpointTest {
 protected:
  TrainerOptions quiet(std::int64_t max_epochs, std::vector<std::shared_ptr<Callback>> callbacks) {
    auto chosen = options(max_epochs);
    chosen.log_every_n_steps = 1;
    chosen.callbacks = std::move(callbacks);
    return chosen;
  }
};

}  // namespace lockstep::testing
