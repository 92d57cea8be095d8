// A model of many equal layers, built in configure_model or in its constructor; each rank notes how much
// memory it took at most until training began.
#include <lockstep/lockstep.h>

#include <fstream>

#include "program_case.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace deferred_case {

struct CaseOptions {
  bool in_constructor = false;
  std::int64_t layers = 4;
  std::int64_t width = 64;
  std::string record = {};
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("in_constructor", o.in_constructor, "Build the layers where no strategy is known");
  v.field("layers", o.layers, "Layers");
  v.field("width", o.width, "Numbers that go into a layer, and come out of it");
  v.field("record", o.record, "File name to note the peak under, in MiB: RECORD.RANK");
}

double memory_mib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) / 1024;
  }
  return -1;
}

struct ManyLayersImpl : ls::Module<ls::Example> {
  explicit ManyLayersImpl(CaseOptions options) : options_(std::move(options)) {
    register_module("layers", layers_);
    if (options_.in_constructor) build();
  }

  void configure_model(ls::TrainContext&) override {
    std::ofstream("/proc/self/clear_refs") << 5;  // forgets the peak of before
    before_ = memory_mib("VmRSS");
    if (layers_->is_empty()) build();
  }

  void build() {
    torch::manual_seed(3);
    for (std::int64_t i = 0; i < options_.layers; ++i)
      layers_->push_back(nn::Linear(options_.width, options_.width));
  }

  void on_fit_start(ls::TrainContext& context) override {
    if (options_.record.empty()) return;
    std::ofstream(options_.record + "." + std::to_string(context.global_rank()))
        << memory_mib("VmHWM") - before_;
  }

  torch::Tensor training_step(const ls::Example& batch, ls::StepContext&) override {
    auto x = batch.data;
    for (const auto& layer : *layers_) x = at::tanh(layer->as<nn::Linear>()->forward(x));
    return x.to(torch::kFloat).pow(2).mean();
  }

  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = 0.1}}; }

  CaseOptions options_;
  double before_ = 0;
  nn::ModuleList layers_;
};
TORCH_MODULE(ManyLayers);

int start(int argc, char** argv) {
  CaseOptions options;
  const ls::Program program{
      .name = "deferred_case",
      .trainer = {.max_steps = 2, .enable_progress_bar = false, .enable_model_summary = false},
      .options = {ls::options("case", options, "the model")}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    const auto data = torch::rand({32, options.width}, at::make_generator<at::CPUGeneratorImpl>(1));
    ls::Trainer trainer(cli.trainer());
    trainer.fit(ManyLayers(options), ls::loader(ls::tensor_dataset(data, data), {.batch_size = 2}));
  });
}

const ProgramCase kCase{"deferred_case", start};

}  // namespace deferred_case
