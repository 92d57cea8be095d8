// The digits of the first example with all that one wants around a training: the best weights, an early end,
// learning rates, accuracy over all ranks, TensorBoard beside the CSV, and a callback of one's own.
//
//   example_04_callbacks_and_logging --trainer.devices 2 --trainer.max_epochs 30
#include <lockstep/lockstep.h>

#include <cstdio>

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct ClassifierImpl : ls::Module<ls::Example> {
  ClassifierImpl() { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto scores = net->forward(batch.data);
    accuracy.update(scores, batch.target);
    step.log("val_loss", F::cross_entropy(scores, batch.target), {.prog_bar = true, .sync_dist = true});
    step.log("val_accuracy", accuracy, {.prog_bar = true});  // of all ranks' samples together
  }
  ls::Optimizers configure_optimizers() override {
    return {.optimizer = ls::AdamW{.lr = 3e-3},
            .lr_scheduler = ls::LRScheduler{.scheduler = ls::ExponentialLR{.gamma = 0.9}}};
  }
  nn::Sequential net{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10)};
  ls::metrics::Accuracy accuracy{ls::metrics::Multiclass{.num_classes = 10}};
};
TORCH_MODULE(Classifier);

// A callback of one's own: hooks are those of modules. It logs the norm of each step's gradient.
class GradientNorm final : public ls::Callback {
 public:
  void on_before_optimizer_step(ls::StepContext& step) override {
    step.log("grad_norm", ls::grad_norm(step.module().parameters()));
  }
};

int main(int argc, char** argv) {
  return ls::run(argc, argv, [](ls::Cli& cli) {
    auto [train, val] =
        ls::split(ls::csv_dataset("data/digits.csv.gz", {.label = -1, .scale = 1.0 / 16}), 0.8, {.seed = 0});
    const auto best = std::make_shared<ls::ModelCheckpoint>(ls::ModelCheckpointOptions{
        .filename = "{epoch}-{val_loss:.3f}", .monitor = "val_loss", .save_top_k = 2});
    const auto patience =
        std::make_shared<ls::EarlyStopping>(ls::EarlyStoppingOptions{.monitor = "val_loss"});

    ls::Trainer trainer(
        cli.trainer({.max_epochs = 10,
                     .strategy = ls::Ddp{},
                     .log_every_n_steps = 10,
                     .logger = {"csv", "tensorboard"},
                     .callbacks = {best, patience, std::make_shared<ls::LearningRateMonitor>(),
                                   std::make_shared<GradientNorm>()}}));
    Classifier model;
    trainer.fit(model, ls::loader(train, {.batch_size = 32, .shuffle = true}),
                ls::loader(val, {.batch_size = 256}));
    // A run that was cut before its first validation has no best, but its last.
    const bool has_best = !best->best_model_path().empty();
    trainer.validate(model, ls::loader(val, {.batch_size = 256}), has_best ? "best" : "last");
    if (!trainer.is_global_zero()) return;
    std::printf("best: %s\n", best->best_model_path().filename().c_str());
    if (!patience->stopping_reason_message().empty())
      std::printf("%s\n", patience->stopping_reason_message().c_str());
  });
}
