// What memory a ShardedEngine has, and what it leaves behind when something fails.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

#include "optim/pieces.h"

#include "corridor.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

TEST(ShardedMemory, KeepsNoBuffersOfAWholeModelThatWasGathered) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm);
    for (int i = 0; i < 2; ++i) corridor_step(*corridor, engine);
    const auto usual = engine.stats().buffer_bytes;
    EXPECT_GT(usual, 0);
    engine.gather_all();
    EXPECT_GT(engine.stats().buffer_bytes, usual);
    engine.forget_gathered();
    EXPECT_EQ(engine.stats().buffer_bytes, 0);
    engine.gather_all();
    corridor_step(*corridor, engine);
    corridor_step(*corridor, engine);
    EXPECT_LE(engine.stats().buffer_bytes, usual);
  });
}

TEST(ShardedMemory, GathersWithoutACopyWhereEveryRankHasAll) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    const ShardedEngine engine(*corridor, comm,
                               {.sharding_strategy = ShardingStrategy::kNoShard,
                                .auto_wrap_policy = "none",
                                .mixed_precision = at::kBFloat16});
    const torch::NoGradGuard no_grad;
    corridor->forward(corridor_input());
    const auto stats = engine.stats();
    EXPECT_EQ(stats.gathers, 1);
    EXPECT_EQ(stats.peak_gathered_bytes, stats.gathered_bytes);
  });
}

// Under ZeRO's stages 1 and 2 a rank's shard is its part of the row that stays: no memory beside it, and no
// copy.
TEST(ShardedMemory, ShardsLieInRowsThatStay) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool is_half : {false, true}) {
      const auto corridor = make_corridor();
      ShardingPlan plan{.shards = 2, .keep = KeepGathered::kUntilStep};
      if (is_half) plan.mixed_precision = {.param_dtype = at::kBFloat16};
      ShardedEngine engine(*corridor, plan, comm);
      corridor_step(*corridor, engine);
      const auto stats = engine.stats();
      EXPECT_EQ(stats.kept_row_bytes, stats.gathered_bytes);
      const auto& weight = corridor->block(1).up->weight;
      const auto& piece = engine.piece_of(weight);
      const bool has_some = piece.numel() > 0;
      const torch::NoGradGuard no_grad;
      corridor->forward(corridor_input());
      const auto lies_inside = [&](const at::Tensor& tensor) {
        const auto* const begin = static_cast<const std::byte*>(weight.const_data_ptr());
        const auto* const own = static_cast<const std::byte*>(tensor.const_data_ptr());
        return begin <= own && own < begin + weight.nbytes();
      };
      if (has_some) {
        EXPECT_EQ(lies_inside(piece), !is_half);
        EXPECT_EQ(is_half, is_half && lies_inside(detail::narrow_copy_of(piece)->elements));
      }
      engine.restore();
      EXPECT_LE(piece.storage().nbytes(), piece.nbytes()) << "or the row would stay as long as the optimizer";
    }
    const auto corridor = make_corridor();
    const ShardedEngine released(*corridor, ShardingPlan{.shards = 2}, comm);
    EXPECT_EQ(released.stats().kept_row_bytes, 0);
  });
}

TEST(ShardedMemory, WholeValuesAreCopies) {
  for (const auto strategy : {ShardingStrategy::kFullShard, ShardingStrategy::kNoShard}) {
    run_ranks(2, [strategy](const Communicator& comm) {
      const auto corridor = make_corridor();
      ShardedEngine engine(*corridor, comm, {.sharding_strategy = strategy});
      std::unordered_map<const at::TensorImpl*, at::Tensor> whole;
      engine.gather_whole(whole);
      for (const auto& [name, piece] : engine.parameters()) piece.data().fill_(7);
      engine.forget_gathered();
      EXPECT_EQ(whole.empty(), comm.rank() > 0);
      for (const auto& [parameter, value] : whole) {
        EXPECT_FALSE(value.eq(7).any().item<bool>());
        EXPECT_EQ(value.storage().nbytes(), value.nbytes());
      }
      engine.restore();
      for (const auto& parameter : corridor->parameters()) {
        EXPECT_TRUE(parameter.eq(7).all().item<bool>());
        EXPECT_EQ(parameter.storage().nbytes(), parameter.nbytes());
      }
    });
  }
}

// Of a model whose engine was refused.
void expect_intact(Corridor& corridor) {
  const auto expected = make_corridor();
  const auto items = corridor.named_parameters();
  for (const auto& item : expected->named_parameters()) {
    ASSERT_TRUE(has_memory(items[item.key()])) << item.key();
    EXPECT_TRUE(items[item.key()].equal(item.value())) << item.key();
  }
  corridor.forward(corridor_input());
}

TEST(ShardedMemory, ParametersOfTwoUnitsThatShareMemoryAreNamed) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    auto &first = corridor->block(1).up->weight, &second = corridor->block(4).up->weight;
    const auto both = at::stack({first.detach(), second.detach()});
    first.set_data(both[0]);
    second.set_data(both[1]);
    test::expect_error<ConfigError>([&] { ShardedEngine(*corridor, comm); },
                                    {"share memory", "blocks.1.up.weight", "blocks.4.up.weight"});
    expect_intact(*corridor);
  });
}

TEST(ShardedMemory, AModelWhoseCheckpointingIsRefusedStaysWhole) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    EXPECT_THROW(
        ShardedEngine(*corridor, comm, {.activation_checkpointing = WrapPolicy(types<nn::Conv2d>())}),
        ConfigError);
    expect_intact(*corridor);
    const ShardedEngine engine(*corridor, comm, {.activation_checkpointing = true});
  });
}

// Their parameters get other memory, after the blocks have been looked for.
TEST(ShardedMemory, CheckpointsBlocksThatComputeInAnotherType) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool is_checkpointed : {false, true}) {
      const auto corridor = make_corridor();
      ShardedEngine engine(*corridor, comm,
                           {.activation_checkpointing = is_checkpointed, .mixed_precision = at::kBFloat16});
      auto& block = corridor->block(0);
      at::Tensor output;
      const auto inside = [&] {
        const auto hidden = block.norm->forward(block.up->forward(corridor_input()));
        output = block.down->forward(hidden);
        return hidden.storage().getWeakStorageImpl();
      }();
      const auto loss = corridor->forward(output, /*skipped=*/0).pow(2).mean();
      EXPECT_EQ(inside.expired(), is_checkpointed);
      engine.backward(loss);
    }
  });
}

// A gradient in a shape that cannot be is found when the unit's gradients are put together.
void fail(Corridor& corridor, ShardedEngine& engine) {
  auto& frozen = corridor.block(2).up->weight;
  frozen.set_requires_grad(false);
  frozen.mutable_grad() = at::ones({2});
  EXPECT_ANY_THROW(engine.backward(corridor.forward(corridor_input()).pow(2).mean()));
  frozen.set_requires_grad(true);
}

TEST(ShardedMemory, AFailedReductionGivesItsBuffersBack) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool is_quantized : {false, true}) {
      const auto corridor = make_corridor();
      const ShardingPlan plan{.shards = 2, .zero_plus_plus = {.quantized_gradients = is_quantized}};
      ShardedEngine engine(*corridor, plan, comm);
      for (int i = 0; i < 3; ++i) corridor_step(*corridor, engine);
      const auto peak = engine.stats().peak_gathered_bytes;
      for (int i = 0; i < 4; ++i) fail(*corridor, engine);
      corridor_step(*corridor, engine);
      EXPECT_EQ(engine.stats().peak_gathered_bytes, peak);
    }
  });
}

}  // namespace
}  // namespace lockstep
