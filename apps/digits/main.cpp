// digits: trains, tunes, validates or tests a classifier of handwritten digits, all by flags.
#include <limits>
#include <optional>
#include <tuple>

#include "mlp.h"

namespace digits {

std::span<const ls::OptionName<OptimizerName>> option_names(OptimizerName) {
  static constexpr ls::OptionName<OptimizerName> kNames[] = {
      {"sgd", OptimizerName::kSgd},   {"adamw", OptimizerName::kAdamW}, {"adagrad", OptimizerName::kAdagrad},
      {"lion", OptimizerName::kLion}, {"lamb", OptimizerName::kLamb},   {"muon", OptimizerName::kMuon}};
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

// Reads the options when it is asked for loaders: `tune` changes them.
class Rows final : public ls::DataModule<ls::Example> {
 public:
  explicit Rows(const DataOptions& options) : options_(options) {
    const auto all = ls::csv_dataset(options.file, {.label = -1, .scale = 1.0 / 16});
    std::tie(train_, held_back_) = ls::split(all, 1 - options.val_fraction, {.seed = 0});
  }
  std::optional<ls::Loader<ls::Example>> train_dataloader() override {
    return ls::loader(
        train_, {.batch_size = options_.batch_size, .shuffle = true, .num_workers = options_.num_workers});
  }
  std::optional<ls::Loader<ls::Example>> val_dataloader() override {
    return ls::loader(held_back_, {.batch_size = 256, .num_workers = options_.num_workers});
  }
  std::optional<ls::Loader<ls::Example>> test_dataloader() override { return val_dataloader(); }

 private:
  const DataOptions& options_;
  ls::DatasetPtr<ls::Example> train_, held_back_;
};

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
      .verbs = {"fit", "tune", "validate", "test"},
      .trainer = {.max_epochs = 10},
      .options = {ls::options("data", data, "the data set"), ls::options("model", model, "the network"),
                  ls::options("optimizer", optimizer, "the optimizer")}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    ls::Trainer trainer(cli.trainer());
    const auto rows = std::make_shared<digits::Rows>(data);
    const digits::Mlp network(64, model.hidden, 10, optimizer);
    if (cli.verb() == "fit") trainer.fit(network, rows);
    if (cli.verb() == "tune")
      cli.tune(trainer, network, rows, {.batch_size = "data.batch_size", .lr = "optimizer.lr"});
    if (cli.verb() == "validate") trainer.validate(network, rows);
    if (cli.verb() == "test") trainer.test(network, rows);
  });
}
