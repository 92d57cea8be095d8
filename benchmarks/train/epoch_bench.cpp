// An epoch of the README's program, digits and all: data loader, training, validation, logging.
//
// Usage: bench_epoch RESULTS DIGITS EPOCHS. The peer is peers/epoch.py.
#include <lockstep/lockstep.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "results.h"

namespace {

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
    step.log("val_loss", F::cross_entropy(net->forward(batch.data), batch.target));
  }
  void on_train_epoch_start(ls::TrainContext& context) override {
    if (context.current_epoch() == 1) first_ns = bench::now_ns();
  }
  void on_train_end(ls::TrainContext&) override { last_ns = bench::now_ns(); }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = 3e-4}}; }

  nn::Sequential net{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10)};
  std::int64_t first_ns = 0, last_ns = 0;
};
TORCH_MODULE(Classifier);

}  // namespace

int main(int, char** argv) {
  torch::set_num_threads(1);
  const int epochs = std::atoi(argv[3]);
  auto [train, val] = ls::split(ls::csv_dataset(argv[2], {.label = -1, .scale = 1.0 / 16}), 0.8, {.seed = 0});
  const auto run_dir = std::filesystem::temp_directory_path() / ("bench_epoch." + std::to_string(getpid()));
  ls::Trainer trainer({.max_epochs = epochs + 1, .run = {.run_dir = run_dir}});
  Classifier model;
  trainer.fit(model, ls::loader(train, {.batch_size = 32, .shuffle = true}),
              ls::loader(val, {.batch_size = 256}));
  bench::Results(argv[1]).add("epoch", static_cast<double>(model->last_ns - model->first_ns) / epochs);
  std::filesystem::remove_all(run_dir);
}
