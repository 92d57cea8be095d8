// One training step of a tiny network: a loop by hand, Fabric, and the Trainer.
//
// Usage: bench_step RESULTS STEPS [CASE...]. The peer is peers/step.py. Two cases are parts of the loop by
// hand, to tell where its time goes: `forward` and `backward` (forward and backward). Two are of DeepSpeed's
// float16 on one rank, under a loss scale that stays, and one that is found.
#include <lockstep/lockstep.h>

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "networks.h"
#include "results.h"
#include "source.h"

namespace {

namespace ls = lockstep;
namespace F = torch::nn::functional;
using bench::Source;

const ls::SGD kSgd{.lr = 0.01};

struct ClassifierImpl : ls::Module<ls::Example> {
  explicit ClassifierImpl(bool logs) : logs_(logs) { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    if (logs_) step.log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = kSgd}; }

  torch::nn::Sequential net = bench::tiny_mlp();

 private:
  bool logs_;
};
TORCH_MODULE(Classifier);

std::unique_ptr<ls::Optimizer> sgd_of(const torch::nn::Module& model) {
  std::vector<ls::NamedParameter> parameters;
  for (const auto& item : model.named_parameters()) parameters.push_back({item.key(), item.value()});
  return ls::OptimizerFactory(kSgd).create(std::move(parameters));
}

enum class Until { kForward, kBackward, kStep };

template <Until until>
void run_loop(const std::shared_ptr<Source>& source) {
  auto model = bench::tiny_mlp();
  const auto optimizer = sgd_of(*model);
  for (std::int64_t index = 0; index < source->batches(); ++index) {
    const auto& batch = source->take(index);
    const auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
    if constexpr (until == Until::kForward) continue;
    optimizer->zero_grad();
    loss.backward();
    if constexpr (until == Until::kStep) optimizer->step();
  }
}

void run_fabric(const std::shared_ptr<Source>& source) {
  ls::Fabric fabric;
  fabric.launch();
  auto [model, optimizer] = fabric.setup(bench::tiny_mlp(), kSgd);
  for (std::int64_t index = 0; index < source->batches(); ++index) {
    const auto& batch = source->take(index);
    const auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
    optimizer->zero_grad();
    fabric.backward(loss);
    optimizer->step();
  }
}

// DeepSpeed's float16 on one rank, of a single layer, as products in float16 take long on CPUs. A loss scale
// of 0 is found, by its rule; another one stays.
void run_deepspeed(const std::shared_ptr<Source>& source, double loss_scale) {
  ls::Fabric fabric(
      {.strategy = ls::DeepSpeed{.stage = 1, .loss_scale = loss_scale}, .precision = ls::Fp16Mixed{}});
  fabric.launch();
  auto [model, optimizer] = fabric.setup(torch::nn::Linear(64, 10), kSgd);
  for (std::int64_t index = 0; index < source->batches(); ++index) {
    const auto& batch = source->take(index);
    at::Tensor loss;
    {
      const auto autocast = fabric.autocast();
      loss = F::cross_entropy(model->forward(batch.data), batch.target);
    }
    optimizer->zero_grad();
    fabric.backward(loss);
    optimizer->step();
  }
}

void run_trainer(const std::shared_ptr<Source>& source, bool full) {
  const auto run_dir = std::filesystem::temp_directory_path() / ("bench_step." + std::to_string(getpid()));
  ls::Trainer trainer({.max_epochs = 1,
                       .logger = full,
                       .enable_checkpointing = full,
                       .enable_progress_bar = full,
                       .run = {.run_dir = run_dir}});
  trainer.fit(Classifier(full), ls::loader(source, {.batch_size = bench::kBatchSize}));
  std::filesystem::remove_all(run_dir);
}

struct Case {
  const char* name;
  void (*run)(const std::shared_ptr<Source>&);
};

constexpr Case kCases[] = {
    {"forward", run_loop<Until::kForward>},
    {"backward", run_loop<Until::kBackward>},
    {"raw_loop", run_loop<Until::kStep>},
    {"fabric", run_fabric},
    {"deepspeed_scale_stays", [](const std::shared_ptr<Source>& source) { run_deepspeed(source, 128); }},
    {"deepspeed_scale_is_found", [](const std::shared_ptr<Source>& source) { run_deepspeed(source, 0); }},
    {"trainer_bare", [](const std::shared_ptr<Source>& source) { run_trainer(source, /*full=*/false); }},
    {"trainer_full", [](const std::shared_ptr<Source>& source) { run_trainer(source, /*full=*/true); }},
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Results results(argv[1]);
  const std::vector<std::string> wanted(argv + 3, argv + argc);
  torch::set_num_threads(1);
  for (const auto& [name, run] : kCases) {
    if (!wanted.empty() && std::ranges::count(wanted, name) == 0) continue;
    const auto source = std::make_shared<Source>(bench::tiny_batch(), std::atoi(argv[2]));
    run(source);
    results.add(name, source->ns_per_step());
  }
}
