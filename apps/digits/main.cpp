// digits: trains, validates or tests a classifier of handwritten digits, all by flags.
#include <limits>

#include "mlp.h"

namespace digits {

std::span<const ls::OptionName<OptimizerName>> option_names(OptimizerName) {
  static constexpr ls::OptionName<OptimizerName> kNames[] = {{"sgd", OptimizerName::kSgd},
                                                             {"adamw", OptimizerName::kAdamW}};
  return kNames;
}

void describe(ls::OptionVisitor& v, OptimizerOptions& o) {
  v.field("name", o.name, "The optimizer; sgd has momentum 0.9");
  v.field("lr", o.lr, "Learning rate", ls::more_than(0));
}

struct DataOptions {
  std::filesystem::path file = "data/digits.csv.gz";
  std::int64_t batch_size = 32;
  double val_fraction = 0.2;
  int num_workers = 0;
};

void describe(ls::OptionVisitor& v, DataOptions& o) {
  v.field("file", o.file, "CSV file (.gz or not): pixels 0..16, the digit in the last column");
  v.field("batch_size", o.batch_size, "Rows of a micro-batch, per rank", ls::at_least(1));
  v.field("val_fraction", o.val_fraction, "Share of the rows that is held back for validation and test",
          ls::between(0.0001, 0.9999));
  v.field("num_workers", o.num_workers, "Threads that load batches ahead", ls::at_least(0));
}

struct ModelOptions {
  std::vector<std::int64_t> hidden{128};
};

void describe(ls::OptionVisitor& v, ModelOptions& o) {
  v.field("hidden", o.hidden, "Widths of the hidden layers", ls::at_least(1));
}

}  // namespace digits

int main(int argc, char** argv) {
  namespace ls = lockstep;
  digits::DataOptions data;
  digits::ModelOptions model;
  digits::OptimizerOptions optimizer;
  const ls::Program program{
      .name = "digits",
      .description = "Trains a classifier of handwritten digits.",
      .verbs = {"fit", "validate", "test"},
      .trainer = {.max_epochs = 10},
      .options = {ls::options("data", data, "the data set"), ls::options("model", model, "the network"),
                  ls::options("optimizer", optimizer, "the optimizer")}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    ls::Trainer trainer(cli.trainer());
    const auto all = ls::csv_dataset(data.file, {.label = -1, .scale = 1.0 / 16});
    auto [train, held_back] = ls::split(all, 1 - data.val_fraction, {.seed = 0});
    const auto train_loader =
        ls::loader(train, {.batch_size = data.batch_size, .shuffle = true, .num_workers = data.num_workers});
    const auto val_loader = ls::loader(held_back, {.batch_size = 256, .num_workers = data.num_workers});
    const digits::Mlp network(64, model.hidden, 10, optimizer);
    if (cli.verb() == "fit") trainer.fit(network, train_loader, val_loader);
    if (cli.verb() == "validate") trainer.validate(network, val_loader);
    if (cli.verb() == "test") trainer.test(network, val_loader);
  });
}
