// When units come and go, and when their gradients travel, where a pass is not like the one before.
#include <gtest/gtest.h>

#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "corridor.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

TEST(ShardedOrder, WholeModulesLeaveTheirBlockWhereItIs) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm, {.ignored_modules = types<nn::LayerNorm>()});
    corridor_step(*corridor, engine);
    // Forward, and backward but for the last block.
    EXPECT_EQ(engine.stats().gathers, 2 * kRoomsOfCorridor - 1);
    corridor_step(*corridor, engine);
    const auto before = engine.stats();
    corridor_step(*corridor, engine);
    const auto after = engine.stats();
    // Once the order is known, backward begins with the two blocks that forward ended with.
    EXPECT_EQ(after.gathers - before.gathers, 2 * kRoomsOfCorridor - 2);
    EXPECT_EQ(after.prefetched_gathers - before.prefetched_gathers, 2 * kRoomsOfCorridor - 3);
  });
}

TEST(ShardedOrder, TheNextBlockComesWhileABlockWithAWholeModuleIsInUse) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm, {.ignored_modules = types<nn::LayerNorm>()});
    const torch::NoGradGuard evaluation;
    for (int i = 0; i < 2; ++i) corridor->forward(corridor_input());
    engine.forget_gathered();
    const auto before = engine.stats();
    corridor->block(0).forward(corridor_input());
    EXPECT_EQ(engine.stats().gathers - before.gathers, 2) << "the block, and the next one ahead";
    EXPECT_TRUE(has_memory(corridor->block(0).down->weight));
  });
}

TEST(ShardedOrder, ABackwardMayReleaseWhatWasGatheredAtOnce) {
  run_ranks(2, [](const Communicator& comm) {
    std::vector<at::Tensor> gradients;
    for (const bool at_once : {false, true}) {
      const auto corridor = make_corridor();
      ShardedEngine engine(*corridor, comm);
      // Used by backward after all gradients of its block are there.
      auto& block = corridor->block(3);
      for (auto& parameter : block.entry->parameters()) parameter.set_requires_grad(false);
      for (auto& parameter : block.up->parameters()) parameter.set_requires_grad(false);
      if (at_once) engine.gather_all();
      engine.backward(corridor->forward(corridor_input()).pow(2).mean());
      std::vector<at::Tensor> own;
      for (const auto& [name, piece] : engine.parameters()) {
        if (piece.grad().defined()) own.push_back(piece.grad());
      }
      gradients.push_back(flat(own));
    }
    EXPECT_TRUE(gradients[0].equal(gradients[1]));
  });
}

TEST(ShardedOrder, WhatIsGatheredAtOnceStaysWhereUnitsGoAfterEveryOperator) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm, {.release_after_every_operator = true});
    engine.gather_all();
    const auto gathers = engine.stats().gathers;
    const torch::NoGradGuard no_grad;
    corridor->forward(corridor_input());
    EXPECT_EQ(engine.stats().gathers, gathers);
    EXPECT_TRUE(has_memory(corridor->block(0).up->weight));
  });
}

// Calls look() when backward has come to the beginning of the model.
template <class Look>
void backward_with(Corridor& corridor, ShardedEngine& engine, int skipped, const Look& look) {
  const auto x = corridor_input().requires_grad_();
  auto input = x * 1;
  input.register_hook([&](const at::Tensor&) { look(); });
  engine.backward(corridor.forward(input, skipped).pow(2).mean());
}

TEST(ShardedOrder, GradientsDoNotWaitForABlockThatIsNotUsedThisTime) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm);
    corridor_step(*corridor, engine);
    const auto before = engine.stats().reductions;
    std::int64_t sent = 0;
    backward_with(*corridor, engine, /*skipped=*/4, [&] { sent = engine.stats().reductions - before; });
    EXPECT_GE(sent, kRoomsOfCorridor - 1) << "all but, perhaps, the first block's";
    EXPECT_EQ(engine.stats().reductions - before, kRoomsOfCorridor);
    for (const auto& [name, piece] : engine.parameters())
      EXPECT_EQ(piece.grad().defined(), !name.starts_with("blocks.4.")) << name;
  });
}

// The last block, used first: others are complete when its gradients come.
at::Tensor last_block_first(Corridor& corridor, bool hides_it) {
  const auto first = [&](const at::Tensor& input) {
    return corridor.block(kRoomsOfCorridor - 1).forward(input);
  };
  const auto x = corridor_input().requires_grad_();
  return corridor.forward(hides_it ? Reentrant::apply(x, first) : first(x), kRoomsOfCorridor - 1)
      .pow(2)
      .mean();
}

TEST(ShardedOrder, GradientsOfAHiddenGraphAreWaitedFor) {
  run_ranks(2, [](const Communicator& comm) {
    const auto expected = make_corridor();
    last_block_first(*expected, /*hides_it=*/false).backward();
    const auto items = expected->named_parameters();
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm);
    for (int step = 0; step < 2; ++step) {
      engine.backward(last_block_first(*corridor, /*hides_it=*/true));
      for (const auto& [name, piece] : engine.parameters()) {
        const auto begin = engine.shard_of(name, piece).begin;
        const auto own = items[name].grad().reshape({-1}).narrow(0, begin, piece.numel());
        EXPECT_TRUE(piece.grad().equal(own)) << name << " in step " << step;
        piece.mutable_grad().reset();
      }
      engine.after_step();
    }
  });
}

TEST(ShardedOrder, AUnitGoesThoughSomeOfItIsNotUsed) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor(/*has_spares=*/true);
    ShardedEngine engine(*corridor, comm, {.sharding_strategy = ShardingStrategy::kShardGradOp});
    bool is_there = true;
    backward_with(*corridor, engine, /*skipped=*/-1,
                  [&] { is_there = has_memory(corridor->block(kRoomsOfCorridor - 1).up->weight); });
    EXPECT_FALSE(is_there);
  });
}

std::int64_t reductions_of_backward(Corridor& corridor, ShardedEngine& engine) {
  const auto before = engine.stats().reductions;
  engine.backward(corridor.forward(corridor_input()).pow(2).mean());
  return engine.stats().reductions - before;
}

TEST(ShardedOrder, BlocksThatAreFrozenForAWhileAreNotReduced) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm);
    const auto freeze = [&](bool is_frozen) {
      for (auto& parameter : corridor->block(2).parameters()) parameter.set_requires_grad(!is_frozen);
    };
    EXPECT_EQ(reductions_of_backward(*corridor, engine), kRoomsOfCorridor);
    freeze(true);
    EXPECT_EQ(reductions_of_backward(*corridor, engine), kRoomsOfCorridor - 1);
    freeze(false);
    for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
    {
      const auto local = engine.no_sync();
      engine.backward(corridor->forward(corridor_input()).pow(2).mean());
    }
    freeze(true);
    EXPECT_EQ(reductions_of_backward(*corridor, engine), kRoomsOfCorridor) << "what has accumulated";
    for (const auto& [name, piece] : engine.parameters()) EXPECT_TRUE(piece.grad().defined()) << name;
  });
}

TEST(ShardedOrder, GradientsOfWholeModulesTravelBesideTheCallersGroup) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm, {.ignored_modules = types<nn::LayerNorm>()});
    const auto sent = comm.bytes_sent();
    auto before = engine.stats().bytes_sent;
    engine.backward(corridor->forward(corridor_input()).pow(2).mean());
    const auto with_whole = engine.stats().bytes_sent - before;
    EXPECT_EQ(comm.bytes_sent(), sent);
    for (const auto& [name, piece] : engine.parameters()) EXPECT_TRUE(piece.grad().defined()) << name;
    for (int i = 0; i < kRoomsOfCorridor; ++i) {
      auto& block = corridor->block(i);
      for (auto& parameter : block.entry->parameters()) parameter.set_requires_grad(false);
      for (auto& parameter : block.norm->parameters()) parameter.set_requires_grad(false);
    }
    engine.after_step();
    before = engine.stats().bytes_sent;
    engine.backward(corridor->forward(corridor_input()).pow(2).mean());
    EXPECT_LT(engine.stats().bytes_sent - before, with_whole) << "they are counted";
  });
}

}  // namespace
}  // namespace lockstep
