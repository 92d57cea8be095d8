// From the death of a rank to the next step of training, under `lockstep run --max-restarts 3`.
//
// Usage: lockstep run ... bench_recovery --resume auto --bench.results FILE. The peer is peers/recovery.py
// under torchrun. Both save a checkpoint after every step.
#include <lockstep/lockstep.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "networks.h"
#include "results.h"

namespace ls = lockstep;

namespace bench {

constexpr int kFaultyRank = 1;
constexpr std::int64_t kFaultyStep = 20;
constexpr std::int64_t kSteps = 30;

struct Options {
  std::string results;
};

void describe(ls::OptionVisitor& visitor, Options& options) {
  visitor.field("results", options.results,
                "File that gets the moments of the fault and of the first step after it");
}

bool is_restarted() { return std::string(std::getenv("TORCHELASTIC_RESTART_COUNT")) != "0"; }

struct ClassifierImpl : ls::Module<ls::Example> {
  explicit ClassifierImpl(std::string path) : results(std::move(path)) { register_module("net", net); }

  torch::Tensor training_step(const ls::Example& batch, ls::StepContext&) override {
    return torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = 1e-3}}; }

  void on_train_batch_end(ls::StepContext& step, const ls::TrainOutput&) override {
    if (is_restarted()) {
      if (step.is_global_zero() && !has_reported) results.add_moment("again", now_ns());
      has_reported = true;
    } else if (step.global_rank() == kFaultyRank && step.global_step() == kFaultyStep) {
      results.add_moment("fault", now_ns());
      std::raise(SIGKILL);
    }
  }

  Results results;
  bool has_reported = false;
  torch::nn::Sequential net = tiny_mlp();
};
TORCH_MODULE(Classifier);

}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  const ls::Program program{.trainer = {.max_epochs = -1,
                                        .max_steps = bench::kSteps,
                                        .strategy = ls::Ddp{},
                                        .enable_progress_bar = false},
                            .options = {ls::options("bench", options)}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    auto trainer_options = cli.trainer();
    trainer_options.callbacks.push_back(
        std::make_shared<ls::ModelCheckpoint>(ls::ModelCheckpointOptions{.every_n_train_steps = 1}));
    ls::Trainer trainer(std::move(trainer_options));
    const auto [data, target] = bench::tiny_batch();
    const auto batches = ls::tensor_dataset(data.repeat({64, 1}), target.repeat({64}));
    trainer.fit(bench::Classifier(options.results), ls::loader(batches, {.batch_size = 32}));
  });
}
