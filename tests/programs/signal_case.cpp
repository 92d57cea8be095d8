// A run that takes its time, and says where it is: for those who send it signals.
#include <lockstep/lockstep.h>

#include <ATen/CPUGeneratorImpl.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <iostream>
#include <thread>

#include "program_case.h"

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

namespace signal_case {

struct NetImpl : ls::Module<ls::Example> {
  NetImpl() { register_module("layers", layers); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = F::mse_loss(layers->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.on_epoch = true, .sync_dist = true});
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    step.log("val_loss", F::mse_loss(layers->forward(batch.data), batch.target), {.sync_dist = true});
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = 0.01}}; }

  nn::Sequential layers{nn::Linear(4, 8), nn::ReLU(), nn::Dropout(0.3), nn::Linear(8, 1)};
};
TORCH_MODULE(Net);

struct CaseOptions {
  std::int64_t batches = 8;  // of each rank in an epoch, of two samples
  std::chrono::milliseconds step_time{0};
  std::int64_t val_batches = 0;      // of each rank in a validation, where there is one
  std::filesystem::path steps = {};  // gets a line for each step of rank 0, and for each batch of validation
  bool handler = false;
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("batches", o.batches, "Batches of each rank in an epoch");
  v.field("step_time", o.step_time, "How long a step takes at least");
  v.field("val_batches", o.val_batches, "Batches of each rank in a validation; 0: none");
  v.field("steps", o.steps, "File to note the steps of rank 0 in");
  v.field("handler", o.handler, "Have a handler of SIGTERM before and after fit");
}

// Other programs wait for these lines.
class Pace final : public ls::Callback {
 public:
  explicit Pace(const CaseOptions& options) : options_(options) {}
  void on_train_batch_end(ls::StepContext& step, const ls::TrainOutput&) override { note(step); }
  void on_validation_batch_end(ls::StepContext& step) override {
    if (step.stage() == ls::Stage::kFit) note(step);
  }

 private:
  void note(const ls::StepContext& step) const {
    if (step.is_global_zero() && !options_.steps.empty())
      std::ofstream(options_.steps, std::ios::app) << step.global_step() << std::endl;
    std::this_thread::sleep_for(options_.step_time);
  }

  const CaseOptions& options_;
};

ls::Loader<ls::Example> data(std::int64_t batches, std::int64_t more_samples = 0) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const auto inputs = torch::randn({2 * batches + more_samples, 4}, generator);
  return ls::loader(ls::tensor_dataset(inputs, inputs.sum(1, true)), {.batch_size = 2, .shuffle = true});
}

std::atomic<int> handled = 0;
void handle(int) { ++handled; }

// Says how often the program's own handler was called until the end of fit, and whether it is back.
void tell_of_handler() {
  const int in_fit = handled;
  std::raise(SIGTERM);
  std::cout << "handled " << in_fit << " in fit, " << handled - in_fit << " after it" << std::endl;
}

int start(int argc, char** argv) {
  CaseOptions options;
  return ls::run(argc, argv, {.options = {ls::options("case", options)}}, [&](ls::Cli& cli) {
    if (options.handler) std::signal(SIGTERM, handle);
    auto trainer_options = cli.trainer({.max_epochs = 4, .enable_progress_bar = false});
    trainer_options.enable_model_summary = false;
    trainer_options.callbacks.push_back(std::make_shared<Pace>(options));
    ls::Trainer trainer(std::move(trainer_options));
    try {
      // One sample more, which not all ranks have.
      const auto val = options.val_batches * trainer.world_size();
      trainer.fit(Net(), data(options.batches * trainer.world_size()),
                  val > 0 ? ls::Loaders<ls::Example>(data(val, 1)) : ls::Loaders<ls::Example>());
    } catch (...) {
      if (options.handler) tell_of_handler();
      throw;
    }
    if (options.handler) tell_of_handler();
    std::cout << "trained to step " << trainer.global_step() << std::endl;
  });
}

const ProgramCase kCase{"signal_case", start};

}  // namespace signal_case
