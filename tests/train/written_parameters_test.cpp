// Parameters that forward writes to, by what this rank's batch holds: an error where ranks hold copies,
// before a checkpoint has either; as in LibTorch on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include <filesystem>
#include <map>

#include "support/temporary_folder.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;

const std::map<std::string, StrategyOptions>& strategies() {
  static const std::map<std::string, StrategyOptions> table = {
      {"ddp", Ddp{}},
      {"NO_SHARD", Fsdp{.sharding_strategy = "NO_SHARD"}},
      {"HYBRID_SHARD", Fsdp{.sharding_strategy = "HYBRID_SHARD", .device_mesh = {2, 2}}},
      {"stage 0", DeepSpeed{.stage = 0}},
      {"stage 1", DeepSpeed{.stage = 1}},
      {"stage 2", DeepSpeed{.stage = 2}},
      {"stage 3", DeepSpeed{.stage = 3}},
      {"FULL_SHARD", Fsdp{}}};
  return table;
}

TrainerOptions options_of(const Communicator& comm, const std::string& strategy, const std::string& run_dir) {
  TrainerOptions options{.max_epochs = 2,
                         .strategy = strategies().at(strategy),
                         .devices = comm.size(),
                         .logger = false,
                         .enable_progress_bar = false};
  options.enable_model_summary = false;
  options.run.run_dir = run_dir;
  return options;
}

struct NormalizedImpl : Module<Example> {
  explicit NormalizedImpl(std::string how) : clips(how == "clips"), replaces(how == "replaces") {
    if (!clips && !replaces) emb = nn::Embedding(nn::EmbeddingOptions(16, 4).max_norm(0.5));
    register_module("emb", emb);
  }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    if (replaces) emb->weight.set_data(emb->weight.detach() + batch.data.mean());
    return (emb(batch.target) - batch.data).square().mean();
  }
  void on_train_batch_end(StepContext&, const TrainOutput&) override {
    const torch::NoGradGuard no_grad;
    if (clips) emb->weight.clamp_(-0.4, 0.4);
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.5}}; }
  bool clips, replaces;
  nn::Embedding emb{16, 4};
};
TORCH_MODULE(Normalized);

struct OwnRatesImpl : Module<Example> {
  OwnRatesImpl() { register_module("fc", fc); }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return (fc(batch.data) - 1).square().mean();
  }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    step.optimizer().groups()[0].lr = 0.5 / (step.global_rank() + 1);
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.5}}; }
  nn::Linear fc{4, 1};
};
TORCH_MODULE(OwnRates);

// argument: strategy, folder, separated by a comma; what rank 0 says
LOCKSTEP_RANK_BODY(train_with_own_rates)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto comma = argument.find(',');
  const auto options = options_of(comm, argument.substr(0, comma), argument.substr(comma + 1));
  ::testing::internal::CaptureStderr();
  Trainer(options).fit(OwnRates(),
                       loader(tensor_dataset(torch::randn({8, 4}), torch::zeros({8})), {.batch_size = 2}));
  const auto said = ::testing::internal::GetCapturedStderr();
  return comm.rank() == 0 ? said : "";
}

// argument: strategy, how weights are written to, folder, separated by commas
LOCKSTEP_RANK_BODY(train_normalized)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto first = argument.find(','), second = argument.find(',', first + 1);
  torch::manual_seed(1);
  Normalized model(argument.substr(first + 1, second - first - 1));
  const auto x = torch::randn({64, 4}), y = torch::randint(16, {64});
  const auto options = options_of(comm, argument.substr(0, first), argument.substr(second + 1));
  Trainer(options).fit(model, loader(tensor_dataset(x, y), {.batch_size = 4}));
  restore_sharded(*model);
  return std::to_string(model->emb->weight.to(torch::kDouble).sum().item<double>());
}

std::vector<testing::RankResult> train(const std::string& strategy, const std::string& how, int ranks,
                                       const std::filesystem::path& folder) {
  return testing::fork_ranks(ranks, "train_normalized", strategy + "," + how + "," + folder.string());
}

TEST(WrittenParameters, AreNamedWhereRanksHoldCopies) {
  for (const auto& [strategy, ranks] :
       {std::pair{"ddp", 2}, {"NO_SHARD", 2}, {"stage 0", 2}, {"HYBRID_SHARD", 4}}) {
    const test::TemporaryFolder folder;
    for (const auto& rank : train(strategy, "normalizes", ranks, folder / "run")) {
      EXPECT_THAT(rank.error, HasSubstr("parameter emb.weight differs between ranks")) << strategy;
      EXPECT_THAT(rank.error, HasSubstr("those of rank 0")) << strategy;
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "run" / "checkpoints" / "last.ckpt")) << strategy;
  }
}

TEST(WrittenParameters, AreNamedWhereTheyGetOtherMemory) {
  const test::TemporaryFolder folder;
  for (const auto& rank : train("ddp", "replaces", 2, folder / "run"))
    EXPECT_THAT(rank.error, HasSubstr("parameter emb.weight differs between ranks"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run" / "checkpoints" / "last.ckpt"));
}

struct FrozenImpl : Module<Example> {
  FrozenImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    if (step.global_step() == 1 && (all || step.global_rank() == 1)) first->bias.requires_grad_(false);
    return (second(torch::relu(first(batch.data))) - batch.data).square().mean();
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.5}}; }
  bool all = false;
  nn::Linear first{4, 8}, second{8, 4};
};
TORCH_MODULE(Frozen);

// argument: strategy, "all" ranks or one freeze, folder, separated by commas
LOCKSTEP_RANK_BODY(train_frozen)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto first = argument.find(','), second = argument.find(',', first + 1);
  torch::manual_seed(1);
  Frozen model;
  model->all = argument.substr(first + 1, second - first - 1) == "all";
  const auto options = options_of(comm, argument.substr(0, first), argument.substr(second + 1));
  Trainer(options).fit(model, loader(tensor_dataset(torch::randn({64, 4})), {.batch_size = 4}));
  return "";
}

TEST(FrozenParameters, AreNamedWhereOneRankFreezesThem) {
  for (const auto* strategy :
       {"NO_SHARD", "HYBRID_SHARD", "stage 0", "stage 1", "stage 2", "stage 3", "FULL_SHARD"}) {
    for (const std::string who : {"one", "all"}) {
      const test::TemporaryFolder folder;
      const int ranks = std::string(strategy) == "HYBRID_SHARD" ? 4 : 2;
      for (const auto& rank : testing::fork_ranks(
               ranks, "train_frozen", std::string(strategy) + "," + who + "," + (folder / "run").string())) {
        if (who == "all") {
          EXPECT_EQ(rank.error, "") << strategy;
          continue;
        }
        EXPECT_THAT(rank.error, HasSubstr("parameter first.bias trained on rank 0; got parameter first.bias "
                                          "frozen on rank 1"))
            << strategy;
      }
      EXPECT_EQ(std::filesystem::exists(folder / "run" / "checkpoints" / "last.ckpt"), who == "all")
          << strategy;
    }
  }
}

TEST(OwnRates, AreNamedBeforeACheckpoint) {
  for (const std::string strategy : {"ddp", "FULL_SHARD", "stage 2"}) {
    const test::TemporaryFolder folder;
    const auto ranks =
        testing::fork_ranks(2, "train_with_own_rates", strategy + "," + (folder / "run").string());
    EXPECT_EQ(ranks.front().error + ranks.back().error, "") << strategy;
    EXPECT_THAT(ranks.front().result,
                AllOf(HasSubstr("group 0: lr 0.5, weight_decay 0.0, momentum 0.0 on rank 0"),
                      HasSubstr("lr 0.25, weight_decay 0.0, momentum 0.0 on rank 1")))
        << strategy;
  }
}

TEST(WrittenParameters, StayEqualWhereEachRankHasItsPart) {
  for (const auto* strategy : {"FULL_SHARD", "stage 1", "stage 2", "stage 3"}) {
    const test::TemporaryFolder folder;
    const auto all = train(strategy, "normalizes", 2, folder / "run");
    for (const auto& rank : all) {
      EXPECT_EQ(rank.error, "") << strategy;
      EXPECT_EQ(rank.result, all.front().result) << strategy;
    }
  }
}

TEST(WrittenParameters, MayBeWrittenOnAllRanksAlike) {
  std::string expected;
  for (const auto* strategy : {"ddp", "NO_SHARD", "stage 0", "stage 1", "FULL_SHARD"}) {
    const test::TemporaryFolder folder;
    for (const auto& rank : train(strategy, "clips", 2, folder / "run")) {
      EXPECT_EQ(rank.error, "") << strategy;
      if (expected.empty()) expected = rank.result;
      EXPECT_EQ(rank.result, expected) << strategy;
    }
  }
}

TEST(WrittenParameters, AreNobodysConcernOnOneRank) {
  for (const auto* strategy : {"ddp", "NO_SHARD", "stage 0"}) {
    const test::TemporaryFolder folder;
    EXPECT_EQ(train(strategy, "normalizes", 1, folder / "run").front().error, "") << strategy;
  }
}

}  // namespace
}  // namespace lockstep
