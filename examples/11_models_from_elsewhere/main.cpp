// Models from elsewhere: a folder of Hugging Face's transformers (GPT-2, Llama, ViT) is loaded by a table of
// names, says its scores, is trained under any strategy, and becomes such a folder again.
//
//   example_11_models_from_elsewhere predict --model.folder gpt2/ --data.file batch.safetensors
//   example_11_models_from_elsewhere fit --model.folder gpt2/ --data.file batch.safetensors
//       --trainer.devices 2 --trainer.strategy fsdp --export.folder tuned/
#include <lockstep/lockstep.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fine_tune.h"

namespace elsewhere {

struct DataOptions {
  std::filesystem::path file = {};
  std::int64_t batch_size = 4;
  bool shuffle = true;
};

struct PredictOptions {
  std::filesystem::path scores = {};
};

void describe(ls::OptionVisitor& v, ModelOptions& o) {
  v.field("folder", o.folder, "Folder of transformers: config.json and safetensors files");
}

void describe(ls::OptionVisitor& v, DataOptions& o) {
  v.field("file", o.file, "safetensors file with input_ids, or pixel_values and labels");
  v.field("batch_size", o.batch_size, "Samples of a micro-batch, per rank", ls::at_least(1));
  v.field("shuffle", o.shuffle, "Whether each epoch of training has an order of its own");
}

void describe(ls::OptionVisitor& v, OptimizerOptions& o) {
  v.field("lr", o.lr, "Learning rate of AdamW", ls::more_than(0));
  v.field("weight_decay", o.weight_decay, "AdamW's", ls::at_least(0));
}

void describe(ls::OptionVisitor& v, PredictOptions& o) {
  v.field("scores", o.scores, "safetensors file for all scores; empty: the largest ones are printed");
}

void describe(ls::OptionVisitor& v, ExportOptions& o) {
  v.field("folder", o.folder, "Folder of transformers that is made; empty: none at the end of fit");
  v.field("from", o.from, "Of the verb export: a checkpoint of this program, or a file of --save_weights");
  v.field("max_shard_kib", o.max_shard_kib, "KiB of tensors in one file", ls::at_least(1));
  v.field("dtype", o.dtype, "float32, bfloat16 or float16; empty: that of the model");
}

const std::filesystem::path& required(const char* key, const std::filesystem::path& path) {
  if (!path.empty()) return path;
  throw ls::ConfigError(
      "flags", {.what = "--" + std::string(key) + " is required", .expected = "a path", .got = "nothing"});
}

// Before an hour of training, and not after it.
void check_target(const ExportOptions& exports, const ModelOptions& model) {
  (void)exports.with(model);
  std::error_code ignored;
  const auto& folder = exports.folder;
  if (!std::filesystem::exists(folder, ignored) || std::filesystem::is_empty(folder, ignored)) return;
  throw ls::ConfigError("export", {.what = "export.folder",
                                   .expected = "a folder that is empty or not there",
                                   .got = "'" + folder.string() + "', which has files"});
}

// The five largest of each sample: of the next token, or of the class.
void print_largest(const ls::Trainer& trainer, const torch::Tensor& scores) {
  const auto last = scores.dim() == 3 ? scores.select(1, -1) : scores;
  const auto [values, numbers] = last.to(torch::kFloat).topk(std::min<std::int64_t>(5, last.size(-1)));
  for (std::int64_t sample = 0; sample < last.size(0); ++sample) {
    std::string line = "sample " + std::to_string(sample) + ":";
    for (std::int64_t place = 0; place < numbers.size(1); ++place)
      line += " " + std::to_string(numbers[sample][place].item<std::int64_t>()) + " (" +
              std::to_string(values[sample][place].item<float>()) + ")";
    trainer.print(line);
  }
}

void predict(ls::Trainer& trainer, const FineTune& model, const ls::Loader<ls::Example>& samples,
             const PredictOptions& options) {
  if (trainer.world_size() > 1)
    throw ls::ConfigError("predict", {.what = "the number of ranks that predict",
                                      .expected = "1, which has all samples",
                                      .got = std::to_string(trainer.world_size())});
  const auto scores = torch::cat(trainer.predict(model, samples));
  if (options.scores.empty()) return print_largest(trainer, scores);
  ls::write_weights(options.scores, {{"scores", scores}});
}

// From a checkpoint, on one rank, without a run.
void convert(const ls::Trainer& trainer, const Family& family, const ModelOptions& model,
             const ExportOptions& exports) {
  const auto& from = required("export.from", exports.from);
  const auto& folder = required("export.folder", exports.folder);
  const auto names = ls::below(kNetwork, family.names);
  if (trainer.is_global_zero()) ls::convert_to_huggingface(from, folder, names, exports.with(model));
}

// metrics.csv then has train/device/items_per_sec.
std::shared_ptr<ls::Callback> tokens_per_second() {
  const auto tokens = [](const ls::AnyBatch& batch) { return batch.get<ls::Example>().data.numel(); };
  return std::make_shared<ls::ThroughputMonitor>(
      ls::ThroughputMonitorOptions{.length_fn = tokens, .window_size = 20});
}

}  // namespace elsewhere

int main(int argc, char** argv) {
  using namespace elsewhere;
  ModelOptions model;
  DataOptions data;
  OptimizerOptions optimizer;
  PredictOptions prediction;
  ExportOptions exports;
  const ls::Program program{
      .name = "models_from_elsewhere",
      .description = "Trains models of Hugging Face's transformers.",
      .verbs = {"fit", "predict", "export"},
      .trainer = {.max_epochs = 1},
      .options = {ls::options("model", model, "the model from elsewhere"),
                  ls::options("data", data, "the samples"), ls::options("optimizer", optimizer, "AdamW"),
                  ls::options("predict", prediction, "what predict leaves"),
                  ls::options("export", exports, "the folder for elsewhere")}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    const auto family = family_of(required("model.folder", model.folder));
    if (cli.verb() == "fit") check_target(exports, model);
    auto options = cli.trainer();
    if (family.is_language_model) options.callbacks.push_back(tokens_per_second());
    ls::Trainer trainer(options);
    if (cli.verb() == "export") return convert(trainer, family, model, exports);
    const Samples samples(family, required("data.file", data.file));
    const FineTune network(family, model, optimizer, exports);
    if (cli.verb() == "predict")
      predict(trainer, network, ls::loader(samples.to_predict(), {.batch_size = data.batch_size}),
              prediction);
    else
      trainer.fit(network,
                  ls::loader(samples.to_train(), {.batch_size = data.batch_size, .shuffle = data.shuffle}));
  });
}
