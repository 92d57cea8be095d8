// A classifier of handwritten digits, trained by local SGD on ranks that a pool of its own may have started.
#include <lockstep/lockstep.h>

#include "local_sgd.h"
#include "pool_environment.h"

namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Options {
  std::filesystem::path data = "data/digits.csv.gz";
  std::int64_t batch_size = 32;
  double lr = 0.1;
  std::int64_t period = 4;
  bool watch = false;
};

void describe(ls::OptionVisitor& v, Options& o) {
  v.field("data", o.data, "Digits as CSV, the label in the last column");
  v.field("batch_size", o.batch_size, "Rows per rank and step", ls::at_least(1));
  v.field("lr", o.lr, "Learning rate", ls::more_than(0));
  v.field("period", o.period, "Steps after which the ranks take the mean of their weights", ls::at_least(1));
  v.field("watch", o.watch, "Say after each step whether all ranks have the same weights");
}

struct ClassifierImpl : ls::Module<ls::Example> {
  explicit ClassifierImpl(const Options& chosen) : options(chosen) { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.sync_dist = true});
    return loss;
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = options.lr}}; }
  nn::Sequential net{nn::Linear(64, 32), nn::ReLU(), nn::Linear(32, 10)};
  const Options& options;
};
TORCH_MODULE(Classifier);

struct WatchReplicas final : ls::Callback {
  void on_train_batch_end(ls::StepContext& step, const ls::TrainOutput&) override {
    const torch::NoGradGuard no_grad;
    const auto& group = step.strategy().communicator();
    const auto own = nn::utils::parameters_to_vector(step.module().parameters());
    const auto all = torch::empty({group.size(), own.numel()});
    group.all_gather(all, own);
    const bool are_equal = all.eq(own).all().item<bool>();
    step.print("step " + std::to_string(step.global_step()) + ": " + (are_equal ? "equal" : "different"));
  }
};

int main(int argc, char** argv) {
  Options options;
  ls::Program program{.name = "local_sgd", .options = {ls::options("train", options)}};
  if (PoolEnvironment::detect()) program.trainer.plugins = {std::make_shared<PoolEnvironment>()};
  program.trainer.max_epochs = 1;
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    auto settings = program.trainer;
    settings.strategy = std::make_shared<LocalSgd>(options.period);
    if (options.watch) settings.callbacks = {std::make_shared<WatchReplicas>()};
    ls::Trainer trainer(cli.trainer(settings));  // with what flags say
    const auto digits = ls::csv_dataset(options.data, {.label = -1, .scale = 1.0 / 16});
    const ls::LoaderOptions batches{.batch_size = options.batch_size, .shuffle = true};
    trainer.fit(Classifier(options), ls::loader(digits, batches));
    trainer.print("trained on " + std::to_string(trainer.world_size()) + " ranks");
  });
}
