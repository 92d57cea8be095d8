// The README's program: a classifier of handwritten digits in forty lines, which tunes itself, too.
#include <lockstep/lockstep.h>
namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Options {  // flags --train.batch_size and --train.lr
  std::int64_t batch_size = 32;
  double lr = 3e-4;
};
void describe(ls::OptionVisitor& v, Options& o) {
  v.field("batch_size", o.batch_size, "Rows per rank and step");
  v.field("lr", o.lr, "Learning rate");
}

struct ClassifierImpl : ls::Module<ls::Example> {  // a torch::nn::Module with training hooks
  explicit ClassifierImpl(const Options& chosen) : options(chosen) { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    step.log("val_loss", F::cross_entropy(net->forward(batch.data), batch.target), {.sync_dist = true});
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = options.lr}}; }
  nn::Sequential net{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10)};
  const Options& options;
};
TORCH_MODULE(Classifier);

int main(int argc, char** argv) {
  Options options;
  const ls::Program program{.verbs = {"fit", "tune"}, .options = {ls::options("train", options)}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {  // parses flags + YAML, starts ranks if asked
    auto [train, val] =
        ls::split(ls::csv_dataset("data/digits.csv.gz", {.label = -1, .scale = 1.0 / 16}), 0.8, {.seed = 0});
    auto data =
        ls::datasets_module<ls::Example>({.train = train, .val = val}, {.batch_size = options.batch_size});
    ls::Trainer trainer(cli.trainer({.max_epochs = 3, .strategy = "ddp"}));
    Classifier model(options);
    if (cli.verb() == "tune")  // finds values for the flags
      return cli.tune(trainer, model, data, {.batch_size = "train.batch_size", .lr = "train.lr"});
    trainer.fit(model, data);
  });
}
