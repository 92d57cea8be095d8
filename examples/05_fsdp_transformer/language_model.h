// Gpt as a module that a Trainer trains: loss, metrics, optimizer and schedule, and text from what was
// learnt.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt.h"

namespace lm {

namespace ls = lockstep;

struct OptimizerOptions {
  double lr = 1e-3;
  double min_lr_ratio = 0.1;
  std::int64_t warmup_steps = 100;
  double weight_decay = 0.1;
};

struct SampleOptions {
  std::string prompt = "The ";
  std::int64_t tokens = 300;
  double temperature = 0.8;
  std::int64_t top_k = 40;
  std::uint64_t seed = 0;
};

/// e to the mean loss over all tokens of all ranks: between how many tokens the model wavers.
class Perplexity final : public ls::metrics::Metric {
 public:
  Perplexity() : Metric("Perplexity") {}
  void update(const torch::Tensor& mean_loss, std::int64_t tokens) {
    const auto count = torch::scalar_tensor(tokens, torch::kDouble);
    update_states({mean_loss.to(torch::kCPU, torch::kDouble) * count, count});
  }
  torch::Tensor compute() const override { return (value(loss_) / value(tokens_)).exp(); }

 private:
  StateId loss_ = add_state("loss", torch::zeros({}, torch::kDouble), ls::metrics::StateReduction::kSum);
  StateId tokens_ = add_state("tokens", torch::zeros({}, torch::kDouble), ls::metrics::StateReduction::kSum);
};

struct LanguageModelImpl : ls::Module<ls::Example> {
  LanguageModelImpl(GptShape shape, OptimizerOptions optimizer, SampleOptions sample)
      : shape_(shape), optimizer_(optimizer), sample_(std::move(sample)) {}

  // Here, and not in the constructor, so that a strategy that shards parameters sees them come, and need
  // never hold all of them.
  void configure_model(ls::TrainContext& context) override {
    if (context.stage() == ls::Stage::kFit) steps_ = context.estimated_stepping_batches();
    if (!gpt_) gpt_ = register_module("gpt", Gpt(shape_));
  }

  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = next_token_loss(gpt_->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.prog_bar = true});
    return loss;
  }

  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = next_token_loss(gpt_->forward(batch.data), batch.target);
    perplexity_.update(loss, batch.target.numel());
    step.log("val_loss", loss, {.prog_bar = true, .sync_dist = true});
    step.log("perplexity", perplexity_, {.prog_bar = true});
  }

  // The prompts of the batch, each with what the model would go on with. A forward pass may gather parameters
  // from all ranks: so all of them must predict as many batches, of as many tokens.
  torch::Tensor predict_step(const ls::Example& batch, ls::StepContext&) override {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(sample_.seed);
    auto tokens_BT = batch.data;
    for (std::int64_t index = 0; index < sample_.tokens; ++index)
      tokens_BT = torch::cat({tokens_BT, next_token(tokens_BT, generator)}, 1);
    return tokens_BT;
  }

  // Weight decay is for matrices; the vectors, biases and LayerNorms, have none.
  ls::Optimizers configure_optimizers() override {
    const std::vector<ls::ParameterGroup> vectors = {{.pattern = "*.bias", .weight_decay = 0.0},
                                                     {.pattern = "*norm.weight", .weight_decay = 0.0}};
    return {.optimizer = ls::AdamW{.lr = optimizer_.lr,
                                   .betas = {0.9, 0.95},
                                   .weight_decay = optimizer_.weight_decay,
                                   .groups = vectors},
            .lr_scheduler = ls::LRScheduler{.scheduler = schedule(), .interval = "step"}};
  }

 private:
  // Up in a straight line, then down along half a cosine to the last step.
  ls::SchedulerOptions schedule() const {
    const auto warmup = std::max<std::int64_t>(1, optimizer_.warmup_steps);
    const ls::LinearLR up{.start_factor = 1.0 / static_cast<double>(warmup), .total_iters = warmup};
    if (!steps_ || *steps_ <= warmup) return up;
    const ls::CosineAnnealingLR down{.T_max = *steps_ - warmup,
                                     .eta_min = optimizer_.lr * optimizer_.min_lr_ratio};
    return ls::SequentialLR{.schedulers = {up, down}, .milestones = {warmup}};
  }

  // Draws one more token for each row, from the top_k most likely ones.
  torch::Tensor next_token(const torch::Tensor& tokens_BT, const at::Generator& generator) {
    const auto begin = std::max<std::int64_t>(0, tokens_BT.size(1) - shape_.context);
    const auto features_BTC = gpt_->features(tokens_BT.slice(1, begin));
    auto scores_BV =
        gpt_->head(features_BTC.select(1, -1)).to(torch::kCPU, torch::kFloat) / sample_.temperature;
    if (sample_.top_k > 0 && sample_.top_k < shape_.vocab) {
      const auto least = std::get<0>(scores_BV.topk(sample_.top_k)).slice(1, -1);
      scores_BV = scores_BV.masked_fill(scores_BV < least, -std::numeric_limits<float>::infinity());
    }
    return torch::multinomial(scores_BV.softmax(-1), 1, false, generator).to(tokens_BT.device());
  }

  GptShape shape_;
  OptimizerOptions optimizer_;
  SampleOptions sample_;
  std::optional<std::int64_t> steps_ = {};  // of the whole fit, where that is known
  Gpt gpt_{nullptr};
  Perplexity perplexity_;
};
TORCH_MODULE(LanguageModel);

}  // namespace lm
