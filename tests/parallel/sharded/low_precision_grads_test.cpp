// Gradients that stay in the type of the computation, on shards of a wider one.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

#include "corridor.h"

namespace lockstep {
namespace {

using lockstep::testing::run_ranks;
using Tensors = std::map<std::string, at::Tensor>;

constexpr MixedPrecision kKept{.param_dtype = at::kBFloat16, .keep_low_precision_grads = true};

MixedPrecision widened(MixedPrecision mixed) {
  mixed.keep_low_precision_grads = false;
  return mixed;
}

// A share of the batch, other numbers in each micro-batch.
at::Tensor loss_in_corridor(Corridor& corridor, const Communicator& comm, int micro_batch) {
  const auto x = corridor_input() * (comm.rank() + 1) + 0.1 * micro_batch;
  return corridor.forward(x).to(at::kFloat).pow(2).mean();
}

Tensors copies_of_gradients(const ShardedEngine& engine) {
  Tensors gradients;
  for (const auto& [name, piece] : engine.parameters()) gradients[name] = piece.grad().clone();
  return gradients;
}

// The averages of one backward after the other, each in the type that it travels in.
std::vector<Tensors> averages_of(const Communicator& comm, Fsdp options, int backwards) {
  options.mixed_precision = widened(options.mixed_precision.value());
  const auto corridor = make_corridor();
  ShardedEngine engine(*corridor, comm, options);
  std::vector<Tensors> averages;
  for (int i = 0; i < backwards; ++i) {
    engine.backward(loss_in_corridor(*corridor, comm, i));
    averages.push_back(copies_of_gradients(engine));
    for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
  }
  return averages;
}

void expect_kept(const Communicator& comm, const Fsdp& options) {
  const auto averages = averages_of(comm, options, 2);
  const auto corridor = make_corridor();
  ShardedEngine engine(*corridor, comm, options);
  EXPECT_EQ(engine.stats().gradient_bytes, 0);
  engine.backward(loss_in_corridor(*corridor, comm, 0));
  EXPECT_EQ(engine.stats().gradient_bytes, engine.stats().shard_bytes / 2);
  for (const auto& [name, piece] : engine.parameters()) {
    EXPECT_EQ(piece.scalar_type(), at::kFloat);
    EXPECT_EQ(piece.grad().scalar_type(), at::kBFloat16) << name;
    EXPECT_TRUE(piece.grad().equal(averages[0].at(name).to(at::kBFloat16))) << name;
  }
  engine.backward(loss_in_corridor(*corridor, comm, 1));
  for (const auto& [name, piece] : engine.parameters()) {
    const auto before = averages[0].at(name).to(at::kBFloat16).to(at::kFloat);
    EXPECT_TRUE(piece.grad().equal((before + averages[1].at(name)).to(at::kBFloat16))) << name;
  }
}

// PyTorch's rule: a backward adds in the type of the shard, and rounds once.
TEST(LowPrecisionGrads, StayInTheTypeOfTheComputation) {
  for (const auto strategy :
       {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp, ShardingStrategy::kNoShard}) {
    run_ranks(2, [strategy](const Communicator& comm) {
      expect_kept(comm, {.sharding_strategy = strategy, .mixed_precision = kKept});
    });
  }
  run_ranks(4, [](const Communicator& comm) {
    expect_kept(comm, {.sharding_strategy = ShardingStrategy::kHybridShard,
                       .device_mesh = {2, 2},
                       .mixed_precision = kKept});
  });
}

TEST(LowPrecisionGrads, AreRoundedOnceWhereTheyTravelInAWiderType) {
  auto mixed = kKept;
  mixed.reduce_dtype = at::kFloat;
  run_ranks(2, [mixed](const Communicator& comm) { expect_kept(comm, {.mixed_precision = mixed}); });
}

TEST(LowPrecisionGrads, AddUpWholeWithinAWindow) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor(), same = make_corridor();
    ShardedEngine kept(*corridor, comm, {.mixed_precision = kKept});
    ShardedEngine wide(*same, comm, {.mixed_precision = widened(kKept)});
    for (const auto& [model, engine] : {std::pair(corridor, &kept), std::pair(same, &wide)}) {
      {
        const auto local = engine->no_sync();
        engine->backward(loss_in_corridor(*model, comm, 0));
      }
      EXPECT_EQ(engine->stats().gradient_bytes, 0);
      engine->backward(loss_in_corridor(*model, comm, 1));
    }
    const auto expected = copies_of_gradients(wide);
    for (const auto& [name, piece] : kept.parameters())
      EXPECT_TRUE(piece.grad().equal(expected.at(name).to(at::kBFloat16))) << name;
  });
}

// On rank 0. Sums that are sent in bfloat16 are bfloat16 either way.
Tensors trained_corridor(const Communicator& comm, const Fsdp& options, const OptimizerFactory& factory) {
  const auto corridor = make_corridor();
  ShardedEngine engine(*corridor, comm, options);
  const auto optimizer = factory.create(engine.parameters(), engine.exchange());
  engine.offload_state(*optimizer);
  for (int step = 0; step < 5; ++step) {
    optimizer->zero_grad();
    engine.backward(loss_in_corridor(*corridor, comm, step));
    EXPECT_GT(engine.grad_norm(optimizer->parameters()), 0);
    optimizer->step();
    engine.after_step();
  }
  ShardedEngine* const engines[] = {&engine};
  return full_state(*corridor, engines);
}

TEST(LowPrecisionGrads, TrainToTheBitsOfThoseThatWereWidened) {
  for (const OptimizerFactory& factory :
       {OptimizerFactory(AdamW{.lr = 1e-2}), OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}),
        OptimizerFactory(Lamb{.lr = 1e-2}), OptimizerFactory(Muon{.lr = 1e-2})}) {
    run_ranks(2, [&](const Communicator& comm) {
      const auto expected = trained_corridor(comm, {.mixed_precision = widened(kKept)}, factory);
      const auto found = trained_corridor(comm, {.mixed_precision = kKept}, factory);
      for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
    });
  }
}

TEST(LowPrecisionGrads, LieOnDiskToo) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](const Communicator& comm) {
    const OptimizerFactory factory(AdamW{.lr = 1e-2});
    const auto expected = trained_corridor(comm, {.mixed_precision = widened(kKept)}, factory);
    const auto found = trained_corridor(
        comm, {.mixed_precision = kKept, .cpu_offload = true, .offload_dir = folder.path()}, factory);
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(found.at(name).equal(tensor)) << name;
  });
}

TEST(LowPrecisionGrads, AreClippedWhereTheyLie) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm, {.mixed_precision = kKept});
    engine.backward(loss_in_corridor(*corridor, comm, 0));
    auto before = copies_of_gradients(engine);
    const auto norm = engine.clip_grad_norm(engine.parameters(), 1e-3);
    const auto coefficient = clip_coefficient(norm, 1e-3);
    EXPECT_LT(coefficient, 1);
    for (const auto& [name, piece] : engine.parameters()) {
      EXPECT_EQ(piece.grad().scalar_type(), at::kBFloat16) << name;
      EXPECT_TRUE(piece.grad().equal(before.at(name).mul_(coefficient))) << name;
    }
    EXPECT_NEAR(engine.grad_norm(engine.parameters()), 1e-3, 1e-5);
  });
}

// Those of modules that compute in their own type have nothing to keep.
TEST(LowPrecisionGrads, OfIgnoredModulesHaveTheirType) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm,
                         {.ignored_modules = types<torch::nn::LayerNorm>(), .mixed_precision = kKept});
    at::Tensor hidden = corridor_input();
    for (int i = 0; i < kRoomsOfCorridor; ++i) hidden = corridor->block(i).up->forward(hidden);
    engine.backward(corridor->block(0).norm->forward(hidden.to(at::kFloat)).pow(2).mean() +
                    hidden.to(at::kFloat).pow(2).mean());
    std::map<std::string, at::ScalarType> types;
    for (const auto& [name, piece] : engine.parameters()) {
      if (piece.grad().defined()) types[name] = piece.grad().scalar_type();
    }
    EXPECT_EQ(types.at("blocks.0.up.weight"), at::kBFloat16);
    EXPECT_EQ(types.at("blocks.0.norm.weight"), at::kFloat);
  });
}

// Among shards and among their copies alike: the sum of all would be infinite.
TEST(LowPrecisionGrads, OfCopiesDoNotOverflowWhereTheirMeanDoesNot) {
  testing::run_ranks(4, [](const Communicator& comm) {
    const auto net = std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(8, 8).bias(false));
    ShardingPlan plan{.shards = 2};
    plan.mixed_precision = {.param_dtype = at::kHalf, .reduce_dtype = at::kHalf};
    ShardedEngine engine(*net, plan, comm);
    engine.backward(net->forward(at::full({1, 8}, 40000.0, at::kHalf)).sum());
    for (const auto& [name, piece] : engine.parameters()) {
      if (piece.numel() == 0) continue;
      EXPECT_TRUE(piece.grad().to(at::kFloat).sub(40000).abs().le(16).all().item<bool>()) << name;
    }
  });
}

TEST(LowPrecisionGrads, NeedAComputationIn16Bits) {
  for (const auto dtype : {std::optional<at::ScalarType>(), std::optional(at::kFloat)}) {
    run_ranks(2, [dtype](const Communicator& comm) {
      const auto corridor = make_corridor();
      const Fsdp options{.mixed_precision =
                             MixedPrecision{.param_dtype = dtype, .keep_low_precision_grads = true}};
      test::expect_error<ConfigError>(
          [&] { ShardedEngine(*corridor, comm, options); },
          {"keep_low_precision_grads", "bfloat16 or float16", dtype ? "Float" : "none"});
      EXPECT_TRUE(has_memory(corridor->block(0).up->weight));
    });
  }
}

}  // namespace
}  // namespace lockstep
