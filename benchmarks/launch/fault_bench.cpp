// A rank that dies, under the launcher: when it did, and when all ranks train again.
//
// Usage: lockstep run ... bench_fault --bench.moments FILE. faults.py runs it; the peer is peers/fault.py
// under torchrun.
#include <lockstep/lockstep.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "networks.h"
#include "results.h"
#include "source.h"

namespace ls = lockstep;
namespace F = torch::nn::functional;

namespace bench {

constexpr std::int64_t kSteps = 30;
constexpr std::int64_t kFaultStep = 20;
constexpr int kFaultRank = 1;

struct Options {
  std::string moments;
};

void describe(ls::OptionVisitor& visitor, Options& options) {
  visitor.field("moments", options.moments, "File for the moments of the fault and of training again");
}

struct ClassifierImpl : ls::Module<ls::Example> {
  ClassifierImpl() { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext&) override {
    return F::cross_entropy(net->forward(batch.data), batch.target);
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = 0.01}}; }

  torch::nn::Sequential net = tiny_mlp();
};
TORCH_MODULE(Classifier);

/// In the launcher's first attempt a rank dies; in the second one the first step ends the wait.
class Watch final : public ls::Callback {
 public:
  explicit Watch(const std::string& moments) : moments_(moments) {}

  void on_train_batch_end(ls::StepContext& step, const ls::TrainOutput&) override {
    if (is_first_attempt_) {
      if (step.global_rank() != kFaultRank || step.global_step() != kFaultStep) return;
      moments_.add_moment("fault", now_ns());
      (void)std::raise(SIGKILL);
    }
    if (!std::exchange(trains_again_, true)) moments_.add_moment("training", now_ns());
  }

 private:
  Results moments_;
  bool is_first_attempt_ = ls::env::get("TORCHELASTIC_RESTART_COUNT").value_or("0") == "0";
  bool trains_again_ = false;
};

}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  const ls::Program program{.options = {ls::options("bench", options)}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    const auto checkpoints =
        std::make_shared<ls::ModelCheckpoint>(ls::ModelCheckpointOptions{.every_n_train_steps = 1});
    ls::Trainer trainer(
        cli.trainer({.max_steps = bench::kSteps,
                     .strategy = ls::Ddp{},
                     .enable_progress_bar = false,
                     .enable_model_summary = false,
                     .callbacks = {checkpoints, std::make_shared<bench::Watch>(options.moments)}}));
    const auto source = std::make_shared<bench::Source>(bench::tiny_batch(), /*steps=*/4000, /*warmup=*/0);
    trainer.fit(bench::Classifier(), ls::loader(source, {.batch_size = bench::kBatchSize}));
  });
}
