// zero::GatheredParameters in a Trainer's hooks and with Fabric, under every strategy: ranks are processes.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include <bit>

#include "support/temporary_folder.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;

StrategyOptions strategy_named(const std::string& name) {
  for (const auto& row : strategy_choices()) {
    if (row.name == name) return row.value;
  }
  throw std::runtime_error("no strategy " + name);
}

// A sum of what pointers say, to the bit.
std::string sum_of(const nn::Module& module) {
  double sum = 0;
  for (const auto& parameter : module.parameters()) {
    const auto* const values = parameter.data_ptr<float>();
    for (std::int64_t i = 0; i < parameter.numel(); ++i) sum += values[i] * static_cast<double>(i + 1);
  }
  return std::to_string(std::bit_cast<std::uint64_t>(sum));
}

void set_bias(nn::Linear& layer, const Communicator& ranks, float value) {
  zero::GatheredParameters whole(*layer, ranks, {.modifier_rank = 1});
  if (ranks.rank() == 1) layer->bias.data_ptr<float>()[2] = value;
  whole.close();
}

struct LookedAtImpl : Module<Example> {
  LookedAtImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return second->forward(first->forward(batch.data).tanh()).pow(2).mean();
  }
  Optimizers configure_optimizers() override { return {.optimizer = AdamW{.lr = 1e-2}}; }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    set_bias(second, step.strategy().communicator(), static_cast<float>(step.batch_idx()));
    zero::GatheredParameters whole(*this, step.strategy().communicator());
    seen += sum_of(*this) + " ";
    whole.close();
  }
  nn::Linear first{40, 50}, second{50, 40};
  std::string seen;
};
TORCH_MODULE(LookedAt);

// argument: strategy, folder
LOCKSTEP_RANK_BODY(gather_in_hooks)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto split = argument.find(' ');
  TrainerOptions options{.max_epochs = 1,
                         .strategy = strategy_named(argument.substr(0, split)),
                         .devices = comm.size(),
                         .enable_progress_bar = false};
  options.enable_model_summary = false;
  options.enable_checkpointing = false;
  options.run.run_dir = argument.substr(split + 1);
  torch::manual_seed(3);
  LookedAt model;
  const auto data = torch::linspace(-1, 1, 8 * 40).view({8, 40});
  Trainer(options).fit(model, loader(tensor_dataset(data), {.batch_size = 2}));
  return model->seen;
}

LOCKSTEP_RANK_BODY(gather_with_fabric)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  Fabric fabric({.strategy = strategy_named(argument), .devices = comm.size()});
  fabric.launch();
  torch::manual_seed(3);
  auto [model, optimizer] = fabric.setup(nn::Linear(40, 50), AdamW{.lr = 1e-2});
  std::string seen;
  for (int step = 0; step < 3; ++step) {
    set_bias(model, fabric.strategy().communicator(), static_cast<float>(step));
    optimizer->zero_grad();
    const auto x = torch::linspace(0, 1 + fabric.global_rank(), 40).view({1, 40});
    fabric.backward(model->forward(x).pow(2).mean());
    optimizer->step();
    zero::GatheredParameters whole(*model, fabric.strategy().communicator());
    seen += sum_of(*model) + " ";
    whole.close();
  }
  return seen;
}

const char* const kStrategies[] = {"ddp", "fsdp", "deepspeed_stage_1", "deepspeed_stage_2",
                                   "deepspeed_stage_3"};

TEST(GatheredParametersInHooks, AreTheSameUnderEveryStrategy) {
  for (const int ranks : {2, 4}) {
    std::string expected;
    for (const std::string strategy : kStrategies) {
      const test::TemporaryFolder folder;
      for (const auto& rank :
           testing::fork_ranks(ranks, "gather_in_hooks", strategy + " " + (folder / "run").string())) {
        EXPECT_EQ(rank.error, "");
        if (expected.empty()) expected = rank.result;
        EXPECT_EQ(rank.result, expected) << strategy << " on " << ranks << " ranks";
      }
    }
    EXPECT_NE(expected, "");
  }
}

TEST(GatheredParametersWithFabric, AreTheSameUnderEveryStrategy) {
  std::string expected;
  for (const std::string strategy : kStrategies) {
    for (const auto& rank : testing::fork_ranks(2, "gather_with_fabric", strategy)) {
      EXPECT_EQ(rank.error, "");
      if (expected.empty()) expected = rank.result;
      EXPECT_EQ(rank.result, expected) << strategy;
    }
  }
  EXPECT_NE(expected, "");
}

}  // namespace
}  // namespace lockstep
