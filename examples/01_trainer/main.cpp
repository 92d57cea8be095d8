// The README's program: a classifier of handwritten digits in thirty lines.
#include <lockstep/lockstep.h>
namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct ClassifierImpl : ls::Module<ls::Example> {  // a torch::nn::Module with training hooks
  ClassifierImpl() { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    step.log("val_loss", F::cross_entropy(net->forward(batch.data), batch.target), {.sync_dist = true});
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = 3e-4}}; }
  nn::Sequential net{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10)};
};
TORCH_MODULE(Classifier);

int main(int argc, char** argv) {
  return ls::run(argc, argv, [](ls::Cli& cli) {  // parses flags + YAML, starts ranks if asked
    auto [train, val] =
        ls::split(ls::csv_dataset("data/digits.csv.gz", {.label = -1, .scale = 1.0 / 16}), 0.8, {.seed = 0});
    ls::Trainer trainer(cli.trainer({.max_epochs = 3, .strategy = ls::Ddp{}}));
    trainer.fit(Classifier(), ls::loader(train, {.batch_size = 32, .shuffle = true}),
                ls::loader(val, {.batch_size = 256}));
  });
}
