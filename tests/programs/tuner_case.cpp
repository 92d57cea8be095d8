// A program that tunes itself, with ranks and memory limits that the test chooses:
//   tuner_case --case.eats 4096               each row of a batch costs so many KiB, kept until backward
//   tuner_case --case.fits 8 --case.rank 1    rank 1 alone runs out of memory with more rows than that,
//              --case.place backward          in forward, backward, or validation
// `fit` trains with a BatchSizeFinder and a LearningRateFinder; `plain` without, with --case.batch_size rows.
#include <limits>

#include <lockstep/lockstep.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "program_case.h"

namespace ls = lockstep;

namespace tuner_case {

enum class Place { kForward, kBackward, kValidation };

std::span<const ls::OptionName<Place>> option_names(Place) {
  static constexpr ls::OptionName<Place> kNames[] = {
      {"forward", Place::kForward}, {"backward", Place::kBackward}, {"validation", Place::kValidation}};
  return kNames;
}

struct CaseOptions {
  std::int64_t fits = std::numeric_limits<std::int64_t>::max();
  int rank = 0;
  Place place = Place::kForward;
  std::int64_t eats = 0;
  std::int64_t batch_size = 2;
  std::int64_t rows = 64;
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("fits", o.fits, "Rows that the rank has memory for");
  v.field("rank", o.rank, "That rank");
  v.field("place", o.place, "Where it runs out of memory");
  v.field("eats", o.eats, "KiB that a row takes");
  v.field("batch_size", o.batch_size, "Rows of a batch");
  v.field("rows", o.rows, "Rows of the data set");
}

[[noreturn]] void run_out_of_memory() {
  torch::empty({std::int64_t{1} << 58});
  throw std::logic_error("this machine has an exabyte");
}

struct EaterImpl : ls::Module<ls::Example> {
  explicit EaterImpl(const CaseOptions& options) : options_(options) { register_module("net", net); }

  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const bool too_much = batch.data.size(0) > options_.fits && step.global_rank() == options_.rank;
    if (too_much && options_.place == Place::kForward) run_out_of_memory();
    auto output = net->forward(batch.data);
    if (too_much && options_.place == Place::kBackward)
      output.register_hook([](const torch::Tensor&) { run_out_of_memory(); });
    auto loss = output.pow(2).mean();
    if (options_.eats > 0) {
      const auto food = torch::ones({batch.data.size(0), options_.eats * 256});
      loss = loss + 0 * (food * output.sum()).sum();
    }
    step.log("train_loss", loss, {.on_epoch = true, .sync_dist = true});
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    const bool too_much = batch.data.size(0) > options_.fits && step.global_rank() == options_.rank;
    if (too_much && options_.place == Place::kValidation) run_out_of_memory();
    step.log("val_loss", net->forward(batch.data).pow(2).mean(), {.sync_dist = true});
  }
  ls::Optimizers configure_optimizers() override {
    return {.optimizer = ls::SGD{.lr = 0.01, .momentum = 0.9}};
  }

  torch::nn::Sequential net{torch::nn::Linear(4, 8), torch::nn::Dropout(0.5), torch::nn::Linear(8, 1)};

 private:
  const CaseOptions& options_;
};
TORCH_MODULE(Eater);

std::string joined_bits(const Eater& model) {
  std::string bits;
  for (const auto& parameter : model->parameters()) {
    const auto values = parameter.detach().contiguous();
    bits.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
  return std::to_string(std::hash<std::string>()(bits));
}

void write_result(const ls::Trainer& trainer, const nlohmann::json& result) {
  const auto name = "rank_" + std::to_string(trainer.global_rank()) + ".json";
  std::ofstream(trainer.run_dir() / name) << result;
}

int start(int argc, char** argv) {
  CaseOptions options;
  const ls::Program program{.verbs = {"tune", "fit", "plain"},
                            .trainer = {.max_epochs = 2, .enable_progress_bar = false},
                            .options = {ls::options("case", options, "the case")}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    torch::manual_seed(7);
    const Eater model(options);
    const auto rows = ls::tensor_dataset(torch::randn({options.rows, 4}));
    const auto data =
        ls::datasets_module<ls::Example>({.train = rows, .val = rows}, {.batch_size = options.batch_size});
    const auto chosen = cli.trainer();
    auto finder = std::make_shared<ls::BatchSizeFinder>(ls::ScaleBatchSizeOptions{.steps_per_trial = 2});
    auto with_finders = chosen;
    with_finders.callbacks = {
        finder, std::make_shared<ls::LearningRateFinder>(ls::LrFindOptions{.update_attr = false})};
    ls::Trainer trainer(cli.verb() == "fit" ? with_finders : chosen);
    nlohmann::json result;
    if (cli.verb() == "tune") {
      ls::Tuner tuner(trainer);
      result["batch_size"] =
          tuner.scale_batch_size(model, data, {.mode = ls::BatchSizeMode::kBinsearch, .margin = 0}).value();
      if (options.eats == 0) {  // nothing to spare for more than what was tried
        const auto curve = tuner.lr_find(model, data, {.num_training = 30}).value();
        result["lr"] = curve.lr;
        result["loss"] = curve.loss;
      }
    } else {
      trainer.fit(model, data);
      if (finder->optimal_batch_size()) result["batch_size"] = *finder->optimal_batch_size();
      result["steps"] = trainer.global_step();
    }
    result["weights"] = joined_bits(model);
    write_result(trainer, result);
  });
}

const ProgramCase kCase{"tuner_case", start};

}  // namespace tuner_case
