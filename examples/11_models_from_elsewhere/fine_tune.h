// A network from elsewhere as a module that a Trainer trains, and the folder that it leaves.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "family.h"

namespace elsewhere {

namespace nn = torch::nn;

struct ModelOptions {
  std::filesystem::path folder = {};
};

struct OptimizerOptions {
  double lr = 1e-4;
  double weight_decay = 0.01;
};

struct ExportOptions {
  std::filesystem::path folder = {};
  std::filesystem::path from = {};
  std::int64_t max_shard_kib = 5'000'000;
  std::string dtype = {};

  /// What is copied from the model's own folder, and how weights are written.
  /// @throws ConfigError for another dtype
  ls::HuggingFaceOptions with(const ModelOptions& model) const;
};

constexpr auto kNetwork = "network";  // the submodule that holds it

struct FineTuneImpl : ls::Module<ls::Example> {
  FineTuneImpl(Family family, ModelOptions model, OptimizerOptions optimizer, ExportOptions exports)
      : family_(std::move(family)),
        model_(std::move(model)),
        optimizer_(optimizer),
        export_(std::move(exports)) {}

  // Here, and not in the constructor, so that a strategy that shards parameters need never hold all of them.
  void configure_model(ls::TrainContext& context) override {
    if (!network_.is_empty()) return;
    network_ = family_.make();
    register_module(kNetwork, network_.ptr());
    ls::load_first_weights(context, model_.folder, *network_.ptr(), family_.names);
  }

  // Scores of the next token for each token, or of the classes for each image.
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto scores = network_.forward(batch.data);
    const auto loss = ls::cross_entropy(scores.flatten(0, -2), batch.target.flatten());
    step.log("train_loss", loss, {.prog_bar = true});
    return loss;
  }

  torch::Tensor predict_step(const ls::Example& batch, ls::StepContext&) override {
    return network_.forward(batch.data);
  }

  ls::Optimizers configure_optimizers() override {
    return {.optimizer = ls::AdamW{.lr = optimizer_.lr, .weight_decay = optimizer_.weight_decay}};
  }

  // All ranks put the parameters together on the first one, which writes them.
  void on_fit_end(ls::TrainContext& context) override {
    if (export_.folder.empty()) return;
    const auto weights = context.strategy().module_state(*this);
    if (context.is_global_zero())
      ls::write_huggingface(export_.folder, weights, ls::below(kNetwork, family_.names),
                            export_.with(model_));
  }

 private:
  Family family_;
  ModelOptions model_;
  OptimizerOptions optimizer_;
  ExportOptions export_;
  nn::AnyModule network_;
};
TORCH_MODULE(FineTune);

inline ls::HuggingFaceOptions ExportOptions::with(const ModelOptions& model) const {
  ls::HuggingFaceOptions options{.like = model.folder,
                                 .max_shard_bytes = static_cast<std::uint64_t>(max_shard_kib) * 1024};
  if (dtype == "float32") options.dtype = torch::kFloat;
  if (dtype == "bfloat16") options.dtype = torch::kBFloat16;
  if (dtype == "float16") options.dtype = torch::kHalf;
  if (!dtype.empty() && !options.dtype)
    throw ls::ConfigError("export", {.what = "export.dtype",
                                     .expected = "float32, bfloat16 or float16; empty: that of the model",
                                     .got = dtype});
  return options;
}

}  // namespace elsewhere
