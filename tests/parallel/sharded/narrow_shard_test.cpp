// Shards in 16 bits that a step writes along: gathers see what the shards are, whoever has changed them.
#include <gtest/gtest.h>

#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>
#include <lockstep/testing/run_ranks.h>

#include "optim/pieces.h"
#include "train/trainer_rank.h"

#include "corridor.h"

namespace lockstep {
namespace {

using lockstep::testing::run_ranks;

const Fsdp kHalfPrecision{.mixed_precision = MixedPrecision{.param_dtype = at::kBFloat16}};

// What operators see of a parameter of the module.
at::Tensor gathered(const at::Tensor& parameter) { return parameter.detach().clone(); }

struct Trained {
  explicit Trained(const Communicator& comm, const Fsdp& options = kHalfPrecision)
      : corridor(make_corridor()),
        engine(*corridor, comm, options),
        optimizer(OptimizerFactory(AdamW{.lr = 0.1}).create(engine.parameters())) {}

  void backward() { engine.backward(corridor->forward(corridor_input()).to(at::kFloat).pow(2).mean()); }
  void step() {
    backward();
    optimizer->step();
    engine.after_step();
    optimizer->zero_grad();
  }
  const at::Tensor& weight() const { return corridor->block(2).up->weight; }
  at::Tensor piece() const { return find(engine.parameters(), "blocks.2.up.weight"); }
  /// What the shards have.
  at::Tensor expected() {
    std::unordered_map<const at::TensorImpl*, at::Tensor> whole;
    engine.gather_whole(whole, WholeValues::kMaster);
    auto values = whole.contains(weight().unsafeGetTensorImpl())
                      ? whole.at(weight().unsafeGetTensorImpl())
                      : at::empty({kCorridorWidth, kCorridorWidth});
    engine.communicator().broadcast(values);
    return values.to(at::kBFloat16);
  }
  static at::Tensor find(const std::vector<NamedParameter>& all, const std::string& name) {
    for (const auto& parameter : all) {
      if (parameter.name == name) return parameter.tensor;
    }
    throw std::runtime_error(name);
  }

  std::shared_ptr<Corridor> corridor;
  ShardedEngine engine;
  std::unique_ptr<Optimizer> optimizer;
};

TEST(NarrowShard, IsWhatGathersStartFromAfterAStep) {
  run_ranks(2, [](const Communicator& comm) {
    Trained run(comm);
    run.step();
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));
    run.step();
    // Who converted once more would not see this.
    detail::narrow_copy_of(run.piece())->elements.fill_(7);
    EXPECT_TRUE(gathered(run.weight()).eq(7).all().item<bool>());
  });
}

TEST(NarrowShard, FollowsWhateverChangesTheShard) {
  run_ranks(2, [](const Communicator& comm) {
    Trained run(comm);
    run.step();
    const torch::NoGradGuard no_grad;
    run.piece().mul_(3);  // before anybody gathers
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));
    run.engine.forget_gathered();

    // An optimizer that knows nothing of it, and no version of a tensor does either.
    auto piece = run.piece();
    for (std::int64_t i = 0; i < piece.numel(); ++i) piece.data_ptr<float>()[i] += 1;
    run.engine.after_step();
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));

    run.weight().mul_(2);  // by an operator, on all ranks alike
    run.engine.forget_gathered();
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));
  });
}

// A step between is seen even where nobody has told the engine.
TEST(NarrowShard, FollowsAStepThatNobodyTells) {
  run_ranks(2, [](const Communicator& comm) {
    Trained run(comm);
    run.backward();
    run.optimizer->step();
    run.corridor->block(0).forward(corridor_input());  // lets the others go
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));
  });
}

// No version counts these: who makes them says so.
TEST(NarrowShard, ForgetsWhatAStepHasWrittenWhereOthersHaveWrittenToo) {
  run_ranks(2, [](const Communicator& comm) {
    Trained run(comm);
    run.backward();
    run.optimizer->step();
    run.piece().data().clamp_(-0.01, 0.01);
    run.engine.forget_gathered();
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));

    run.engine.forget_gathered();
    run.backward();
    run.optimizer->step();
    const auto other = OptimizerFactory(SGD{.lr = 0.5}).create({{"a_view", run.piece().detach()}});
    other->parameters().front().tensor.mutable_grad() = at::ones_like(run.piece());
    other->step();
    run.engine.after_step();
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));
  });
}

TEST(NarrowShard, ConvertsThePieceThatWasChangedAlone) {
  run_ranks(2, [](const Communicator& comm) {
    Trained run(comm);
    run.step();
    const torch::NoGradGuard no_grad;
    const auto& other = run.corridor->block(2).down->weight;
    const auto other_piece = Trained::find(run.engine.parameters(), "blocks.2.down.weight");
    detail::narrow_copy_of(other_piece)->elements.fill_(7);
    run.piece().mul_(2);
    EXPECT_TRUE(gathered(run.weight()).equal(run.expected()));
    EXPECT_TRUE(gathered(other).eq(7).all().item<bool>());
  });
}

// By the steps that Fabric and the Trainer take.
LOCKSTEP_RANK_BODY(narrow_step_of_fabric)(Communicator comm, std::string strategy)->std::string {
  testing::become_trainer_rank(comm);
  StrategyOptions options = kHalfPrecision;
  if (strategy != "fsdp") options = DeepSpeed{.stage = std::stoi(strategy)};
  FabricOptions chosen{.strategy = options, .devices = comm.size()};
  chosen.precision = Bf16Mixed{};
  Fabric fabric(chosen);
  fabric.launch();
  auto [model, optimizer] = fabric.setup(torch::nn::Linear(64, 64), AdamW{.lr = 0.1});
  for (int step = 0; step < 2; ++step) {
    optimizer->zero_grad();
    fabric.backward(model->forward(corridor_input()).to(at::kFloat).pow(2).mean());
    optimizer->step();
  }
  const auto piece = Trained::find(optimizer->parameters(), "weight");
  detail::narrow_copy_of(piece)->elements.fill_(7);
  return gathered(model->weight).eq(7).all().item<bool>() ? "not converted" : "converted";
}

TEST(NarrowShard, IsWhatGathersStartFromUnderStrategies) {
  for (const char* strategy : {"fsdp", "2", "3"}) {
    for (const auto& rank : testing::fork_ranks(2, "narrow_step_of_fabric", strategy))
      EXPECT_EQ(rank.result, "not converted") << strategy << rank.error;
  }
}

TEST(NarrowShard, IsGoneWithTheEngine) {
  run_ranks(2, [](const Communicator& comm) {
    at::Tensor piece;
    {
      Trained run(comm);
      piece = run.piece();
      EXPECT_NE(detail::narrow_copy_of(piece), nullptr);
    }
    EXPECT_EQ(detail::narrow_copy_of(piece), nullptr);
  });
}

TEST(NarrowShard, IsThereOnlyWhereItSavesSomething) {
  run_ranks(2, [](const Communicator& comm) {
    const auto shard_bytes = [&](const Trained& run) { return run.engine.stats().shard_bytes; };
    Trained half(comm);
    EXPECT_GE(half.engine.stats().narrow_bytes, shard_bytes(half) / 2);
    EXPECT_LT(half.engine.stats().narrow_bytes, shard_bytes(half));
    EXPECT_EQ(Trained(comm, {}).engine.stats().narrow_bytes, 0);
    Trained whole(comm, {.sharding_strategy = ShardingStrategy::kNoShard,
                         .mixed_precision = kHalfPrecision.mixed_precision});
    EXPECT_EQ(whole.engine.stats().narrow_bytes, 0);
    EXPECT_EQ(detail::narrow_copy_of(whole.piece()), nullptr);
  });
}

}  // namespace
}  // namespace lockstep
