// A program that asks for ranks in code: `in_code trainer` without ls::run(), `in_code` in its body. There
// rank 1 fails in the hook that is named: `in_code fit_end`, `in_code teardown`.
#include <lockstep/lockstep.h>

#include "program_case.h"

namespace ls = lockstep;

namespace in_code {

struct TinyImpl : ls::Module<ls::Example> {
  TinyImpl() { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext&) override {
    return net->forward(batch.data).pow(2).mean();
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = 0.1}}; }
  torch::nn::Linear net{2, 1};
};
TORCH_MODULE(Tiny);

// One rank alone wants to stop, in an early batch.
struct StopOnRankOne : ls::Callback {
  void on_train_batch_end(ls::StepContext& step, const ls::TrainOutput&) override {
    if (step.global_rank() == 1) step.stop();
  }
};

// Rank 1 fails where fit is over but for its last hooks.
struct FailLateOnRankOne : ls::Callback {
  explicit FailLateOnRankOne(bool in_teardown) : in_teardown_(in_teardown) {}
  void on_fit_end(ls::TrainContext& context) override { fail(context, !in_teardown_); }
  void teardown(ls::TrainContext& context) override { fail(context, in_teardown_); }

 private:
  static void fail(ls::TrainContext& context, bool here) {
    if (here && context.global_rank() == 1) throw std::runtime_error("the upload was refused");
  }
  bool in_teardown_;
};

void train(ls::TrainerOptions options) {
  torch::ones({2}).sum();  // ranks must start although tensors exist
  if (!options.max_epochs) options.max_epochs = 1;
  ls::Trainer trainer(options);
  trainer.fit(Tiny(), ls::loader(ls::tensor_dataset(torch::ones({8, 2})), {.batch_size = 2}));
  trainer.print("world size " + std::to_string(trainer.world_size()) + ", epochs " +
                std::to_string(trainer.current_epoch()));
}

int start(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "trainer") {
    train({.devices = 2});
    return 0;
  }
  if (how == "stop") {
    train({.max_epochs = 50, .devices = 2, .callbacks = {std::make_shared<StopOnRankOne>()}});
    return 0;
  }
  if (how == "twice") {
    train({.devices = 2});
    train({.devices = 2});
    return 0;
  }
  if (how == "fork") {
    train({.strategy = ls::Ddp{.start_method = ls::StartMethod::kFork}, .devices = 2});
    return 0;
  }
  return ls::run(argc, argv, {.verbs = {"fit", "fit_end", "teardown"}}, [](ls::Cli& cli) {
    auto options = cli.trainer({.devices = 2});
    if (cli.verb() != "fit")
      options.callbacks = {std::make_shared<FailLateOnRankOne>(cli.verb() == "teardown")};
    train(std::move(options));
  });
}

const ProgramCase kCase{"in_code", start};

}  // namespace in_code
