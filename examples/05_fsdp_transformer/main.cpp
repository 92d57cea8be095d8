// A language model of the kind of GPT-2, from 35 thousand to 124 million parameters and up, on any text.
//
//   example_05_fsdp_transformer --model.size 1m --trainer.devices 2
#include <lockstep/lockstep.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "language_model.h"
#include "text.h"
#include "tokenizer.h"

namespace lm {

enum class ModelSize { kTiny, k1m, k10m, kGpt2 };

std::span<const ls::OptionName<ModelSize>> option_names(ModelSize) {
  static constexpr ls::OptionName<ModelSize> kNames[] = {{"tiny", ModelSize::kTiny},
                                                         {"1m", ModelSize::k1m},
                                                         {"10m", ModelSize::k10m},
                                                         {"gpt2", ModelSize::kGpt2}};
  return kNames;
}

struct ModelOptions {
  ModelSize size = ModelSize::k1m;
  std::optional<std::int64_t> layers = {}, heads = {}, width = {}, context = {};
  double dropout = 0;
};

struct DataOptions {
  std::vector<std::filesystem::path> text = {"/usr/share/common-licenses"};
  std::int64_t vocab_size = Tokenizer::kBytes;
  double val_fraction = 0.1;
  std::int64_t batch_size = 16;
};

void describe(ls::OptionVisitor& v, ModelOptions& o) {
  v.field("size", o.size, "Layers, heads, width and context, as far as they are not given");
  v.field("layers", o.layers, "Blocks", ls::at_least(1));
  v.field("heads", o.heads, "Heads of each block's attention; divides width", ls::at_least(1));
  v.field("width", o.width, "Numbers by which a block knows a token", ls::at_least(1));
  v.field("context", o.context, "Tokens of a sample, and how far the model looks back", ls::at_least(1));
  v.field("dropout", o.dropout, "Share that is dropped in training", ls::between(0, 0.9));
}

void describe(ls::OptionVisitor& v, DataOptions& o) {
  v.field("text", o.text, "Files, and folders of files, to learn from");
  v.field("vocab_size", o.vocab_size, "Tokens: 256 bytes, and above that pairs learnt from the text",
          ls::at_least(Tokenizer::kBytes));
  v.field("val_fraction", o.val_fraction, "Share of the samples that is held back for validation",
          ls::between(0.001, 0.9));
  v.field("batch_size", o.batch_size, "Samples of a micro-batch, per rank", ls::at_least(1));
}

void describe(ls::OptionVisitor& v, OptimizerOptions& o) {
  v.field("lr", o.lr, "Learning rate after the warm-up", ls::more_than(0));
  v.field("min_lr_ratio", o.min_lr_ratio, "Share of it at the end", ls::between(0, 1));
  v.field("warmup_steps", o.warmup_steps, "Steps in which it is reached", ls::at_least(0));
  v.field("weight_decay", o.weight_decay, "AdamW's, on matrices", ls::at_least(0));
}

void describe(ls::OptionVisitor& v, SampleOptions& o) {
  v.field("prompt", o.prompt, "What the text at the end begins with");
  v.field("tokens", o.tokens, "How many are added to it; 0: no text", ls::at_least(0));
  v.field("temperature", o.temperature, "Below 1: likely tokens become likelier", ls::more_than(0));
  v.field("top_k", o.top_k, "Draw from so many of the most likely tokens; 0: from all", ls::at_least(0));
  v.field("seed", o.seed, "Of the draws: the same weights and seed give the same text");
}

GptShape preset(ModelSize size) {
  switch (size) {
    case ModelSize::kTiny:
      return {.layers = 2, .heads = 2, .width = 32, .context = 32};
    case ModelSize::k1m:
      return {.layers = 5, .heads = 4, .width = 128, .context = 128};
    case ModelSize::k10m:
      return {.layers = 6, .heads = 6, .width = 384, .context = 256};
    case ModelSize::kGpt2:
      break;
  }
  return {.layers = 12, .heads = 12, .width = 768, .context = 1024};
}

GptShape shape_of(const ModelOptions& model, const DataOptions& data) {
  auto shape = preset(model.size);
  shape.layers = model.layers.value_or(shape.layers);
  shape.heads = model.heads.value_or(shape.heads);
  shape.width = model.width.value_or(shape.width);
  shape.context = model.context.value_or(shape.context);
  shape.vocab = data.vocab_size;
  shape.dropout = model.dropout;
  if (shape.width % shape.heads == 0) return shape;
  throw ls::ConfigError("model", {.what = "model.width cannot be shared out among the heads",
                                  .expected = "a multiple of model.heads = " + std::to_string(shape.heads),
                                  .got = std::to_string(shape.width)});
}

// Every rank has the prompt once, and goes on from it with the same draws; the first one prints what came.
void print_sample(ls::Trainer& trainer, const LanguageModel& model, const Tokenizer& tokenizer,
                  const SampleOptions& sample) {
  const auto prompt = tokenizer.encode(sample.prompt.empty() ? "\n" : sample.prompt);
  if (sample.tokens == 0) return;
  const auto row = torch::tensor(std::vector<std::int64_t>(prompt.begin(), prompt.end()));
  const auto prompts = ls::tensor_dataset(row.repeat({trainer.world_size(), 1}));
  const auto texts = trainer.predict(model, ls::loader(prompts));
  const auto tokens = texts.at(0).flatten();
  trainer.print(
      tokenizer.decode({tokens.data_ptr<std::int64_t>(), static_cast<std::size_t>(tokens.numel())}));
}

std::shared_ptr<ls::Callback> tokens_per_second() {
  const auto tokens = [](const ls::AnyBatch& batch) { return batch.get<ls::Example>().data.numel(); };
  return std::make_shared<ls::ThroughputMonitor>(
      ls::ThroughputMonitorOptions{.length_fn = tokens, .window_size = 20});
}

}  // namespace lm

int main(int argc, char** argv) {
  namespace ls = lockstep;
  lm::ModelOptions model;
  lm::DataOptions data;
  lm::OptimizerOptions optimizer;
  lm::SampleOptions sample;
  const ls::Program program{
      .name = "transformer",
      .description = "Trains a language model on text, and writes some.",
      .verbs = {"fit", "validate", "predict"},
      .trainer = {.max_epochs = 10, .gradient_clip_val = 1.0, .log_every_n_steps = 10},
      .options = {ls::options("model", model, "the network"), ls::options("data", data, "the text"),
                  ls::options("optimizer", optimizer, "AdamW, warm-up and cosine"),
                  ls::options("sample", sample, "the text at the end")}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    const auto shape = lm::shape_of(model, data);
    auto trainer_options = cli.trainer();
    trainer_options.callbacks.push_back(lm::tokens_per_second());
    ls::Trainer trainer(trainer_options);

    const auto text = lm::read_text(data.text);
    const lm::Tokenizer tokenizer(text, data.vocab_size);
    const auto blocks = std::make_shared<lm::Blocks>(tokenizer.encode(text), shape.context);
    auto [train, val] = ls::split(blocks, 1 - data.val_fraction, {.seed = 0});
    const auto val_batches = ls::loader(val, {.batch_size = data.batch_size});

    const lm::LanguageModel network(shape, optimizer, sample);
    if (cli.verb() == "fit")
      trainer.fit(network, ls::loader(train, {.batch_size = data.batch_size, .shuffle = true}), val_batches);
    if (cli.verb() == "validate") trainer.validate(network, val_batches);
    if (cli.verb() != "validate") lm::print_sample(trainer, network, tokenizer, sample);
  });
}
