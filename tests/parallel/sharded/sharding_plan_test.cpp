// What a plan says, by what an engine then does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "parallel/sharded/shard_layout.h"

#include "../ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

constexpr int kFloors = 6;
constexpr std::int64_t kFloorWidth = 64;
constexpr std::int64_t kFloorElements = 2 * kFloorWidth * kFloorWidth + 2 * kFloorWidth;

// Blocks of equal size, and nothing else.
struct EqualBlocks : nn::Module {
  EqualBlocks() {
    register_module("blocks", blocks);
    for (int i = 0; i < kFloors; ++i) {
      blocks->push_back(nn::Sequential(nn::Linear(kFloorWidth, kFloorWidth), nn::GELU(),
                                       nn::Linear(kFloorWidth, kFloorWidth)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = x + block->as<nn::Sequential>()->forward(x);
    return x;
  }
  nn::ModuleList blocks;
};

std::shared_ptr<EqualBlocks> make_stack() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(2);
  return std::make_shared<EqualBlocks>();
}

at::Tensor stack_loss(EqualBlocks& stack) { return stack.forward(at::ones({4, kFloorWidth})).pow(2).mean(); }

// One step of some micro-batches, all of which are averaged.
void micro_batches(EqualBlocks& stack, ShardedEngine& engine, int count) {
  for (int i = 0; i < count; ++i) engine.backward(stack_loss(stack));
  for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
  engine.after_step();
}

// In one step, when the order of units is known.
ShardedStats stats_of_a_step(EqualBlocks& stack, ShardedEngine& engine, int micro = 1) {
  for (int i = 0; i < 2; ++i) micro_batches(stack, engine, micro);
  const auto before = engine.stats();
  micro_batches(stack, engine, micro);
  auto stats = engine.stats();
  stats.gathers -= before.gathers;
  stats.prefetched_gathers -= before.prefetched_gathers;
  stats.reductions -= before.reductions;
  return stats;
}

TEST(ShardingPlan, KeepsUnitsUntilTheStep) {
  run_ranks(2, [](const Communicator& comm) {
    const auto stack = make_stack();
    ShardedEngine engine(*stack, ShardingPlan{.shards = 2, .keep = KeepGathered::kUntilStep}, comm);
    const auto stats = stats_of_a_step(*stack, engine, /*micro=*/3);
    EXPECT_EQ(stats.gathers, kFloors);
    EXPECT_EQ(stats.reductions, 3 * kFloors);
    const auto before = engine.stats().gathers;
    {
      const torch::NoGradGuard evaluation;
      for (int i = 0; i < 2; ++i) stack->forward(at::ones({4, kFloorWidth}));
    }
    EXPECT_EQ(engine.stats().gathers - before, kFloors);
  });
}

TEST(ShardingPlan, KeepsTheLastUnitsOfForwardWithinItsBudget) {
  run_ranks(2, [](const Communicator& comm) {
    std::vector<std::int64_t> gathers;
    for (const std::int64_t budget : {std::int64_t{0}, 4 * (kFloorElements + 4096), ShardingPlan::kNoLimit}) {
      const auto stack = make_stack();
      ShardedEngine engine(*stack, ShardingPlan{.shards = 2, .max_live_elements = budget}, comm);
      gathers.push_back(stats_of_a_step(*stack, engine).gathers);
    }
    // Backward begins with the two blocks that forward ended with.
    EXPECT_THAT(gathers, ::testing::ElementsAre(2 * kFloors - 2, 2 * kFloors - 4, kFloors));
  });
}

TEST(ShardingPlan, GathersSmallParametersOnceAStep) {
  run_ranks(2, [](const Communicator& comm) {
    const auto stack = make_stack();
    ShardedEngine engine(*stack, ShardingPlan{.shards = 2, .persistent_elements = kFloorWidth}, comm);
    EXPECT_EQ(engine.unit_names().back(), "persistent");
    // The biases, and the weights of each block.
    EXPECT_EQ(stats_of_a_step(*stack, engine, /*micro=*/2).gathers, 1 + 2 * (2 * kFloors - 2));
  });
}

// Of a unit on two ranks.
std::int64_t row_elements(const std::vector<std::int64_t>& sizes) {
  return detail::ShardLayout(sizes, 2).total_elements();
}

TEST(ShardingPlan, LimitsWhatIsPersistent) {
  run_ranks(2, [](const Communicator& comm) {
    const auto stack = make_stack();
    const ShardingPlan plan{
        .shards = 2, .persistent_elements = kFloorWidth, .most_persistent_elements = 3 * kFloorWidth};
    const ShardedEngine engine(*stack, plan, comm);
    EXPECT_EQ(engine.unit_names().back(), "persistent");
    {
      const torch::NoGradGuard no_grad;
      stack->forward(at::ones({4, kFloorWidth}));
    }
    // The first three biases, and each block without those of them that are its own.
    const auto matrix = kFloorWidth * kFloorWidth, bias = kFloorWidth;
    const auto elements = row_elements({bias, bias, bias}) + row_elements({matrix, matrix}) +
                          row_elements({matrix, matrix, bias}) +
                          (kFloors - 2) * row_elements({matrix, bias, matrix, bias});
    EXPECT_EQ(engine.stats().gathered_bytes, 4 * elements);
    const ShardingPlan none{
        .shards = 2, .persistent_elements = kFloorWidth, .most_persistent_elements = kFloorWidth - 1};
    const auto other = make_stack();
    EXPECT_NE(ShardedEngine(*other, none, comm).unit_names().back(), "persistent");
  });
}

TEST(ShardingPlan, GathersAheadNoUnitThatIsTooLarge) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool fits : {true, false}) {
      const auto stack = make_stack();
      const auto most = fits ? kFloorElements + 4096 : kFloorElements - 1;
      ShardedEngine engine(*stack, ShardingPlan{.shards = 2, .most_prefetched_elements = most}, comm);
      const auto ahead = stats_of_a_step(*stack, engine).prefetched_gathers;
      EXPECT_EQ(ahead > 0, fits) << ahead;
    }
  });
}

TEST(ShardingPlan, StepsWiderShardsOfANarrowModel) {
  run_ranks(2, [](const Communicator& comm) {
    const auto stack = make_stack();
    stack->to(at::kBFloat16);
    const auto first = stack->named_parameters()["blocks.0.0.weight"].detach().clone();
    const ShardingPlan plan{.shards = 2,
                            .mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat},
                            .master_dtype = at::kFloat};
    ShardedEngine engine(*stack, plan, comm);
    const auto optimizer = OptimizerFactory(SGD{.lr = 1e-9}).create(engine.parameters());
    for (const auto& [name, piece] : engine.parameters()) EXPECT_EQ(piece.scalar_type(), at::kFloat);
    engine.backward(stack_loss(*stack));
    optimizer->step();
    engine.after_step();
    ShardedEngine* const engines[] = {&engine};
    const auto own = full_state(*stack, engines);
    const auto master = full_state(*stack, engines, WholeValues::kMaster);
    if (comm.rank() == 0) {
      EXPECT_TRUE(own.at("blocks.0.0.weight").equal(first));  // too small a step for bfloat16
      EXPECT_FALSE(master.at("blocks.0.0.weight").equal(first.to(at::kFloat)));
    }
    engine.restore();
    EXPECT_EQ(stack->parameters().front().scalar_type(), at::kBFloat16);
  });
}

TEST(ShardingPlan, HasAsManyShardsAsFit) {
  run_ranks(3, [](const Communicator& comm) {
    const auto stack = make_stack();
    EXPECT_THROW(ShardedEngine(*stack, ShardingPlan{.shards = 2}, comm), ConfigError);
    EXPECT_THROW(ShardedEngine(*stack, ShardingPlan{.shards = 0}, comm), ConfigError);
  });
}

}  // namespace
}  // namespace lockstep
