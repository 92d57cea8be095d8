// What travels and what is held: by the formulas of ZeRO-3 (arXiv:1910.02054, section 7) and of FSDP.
#include <gtest/gtest.h>

#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "../ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

constexpr int kBlocks = 6;
constexpr std::int64_t kTowerWidth = 320;

// Blocks of equal size, and nothing else.
struct Tower : nn::Module {
  Tower() {
    register_module("blocks", blocks);
    for (int i = 0; i < kBlocks; ++i) {
      blocks->push_back(nn::Sequential(nn::Linear(kTowerWidth, 4 * kTowerWidth), nn::GELU(),
                                       nn::Linear(4 * kTowerWidth, kTowerWidth)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = x + block->as<nn::Sequential>()->forward(x);
    return x;
  }
  nn::ModuleList blocks;
};

std::shared_ptr<Tower> make_tower() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(2);
  return std::make_shared<Tower>();
}

std::int64_t bytes_of(const nn::Module& module) {
  std::int64_t bytes = 0;
  for (const auto& parameter : module.parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
  return bytes;
}

void step(Tower& tower, ShardedEngine& engine) {
  engine.backward(tower.forward(at::ones({4, kTowerWidth})).pow(2).mean());
  for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
  engine.after_step();
}

// What a rank sends in one step once the order of units is known.
std::int64_t bytes_per_step(Tower& tower, ShardedEngine& engine) {
  for (int i = 0; i < 2; ++i) step(tower, engine);
  const auto before = engine.stats().bytes_sent;
  step(tower, engine);
  return engine.stats().bytes_sent - before;
}

TEST(ShardedTraffic, FullShardSendsTwoGathersAndOneReduction) {
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, [ranks](const Communicator& comm) {
      const auto tower = make_tower();
      const double model = static_cast<double>(bytes_of(*tower));
      const auto engine = fully_shard(tower, comm);
      const double sent = static_cast<double>(bytes_per_step(*tower, *engine));
      const double others = (ranks - 1.0) / ranks;
      // Backward begins with the two blocks that forward ended with, which are still there.
      const double expected = others * (3 * model - 2 * model / kBlocks);
      EXPECT_NEAR(sent, expected, 0.01 * expected) << ranks << " ranks";
      // An engine that all-reduced whole gradients would send one model more.
      EXPECT_LT(sent, others * 3.5 * model);
    });
  }
}

TEST(ShardedTraffic, ShardGradOpSendsOneGatherAndOneReduction) {
  run_ranks(4, [](const Communicator& comm) {
    const auto tower = make_tower();
    const double model = static_cast<double>(bytes_of(*tower));
    const auto engine = fully_shard(tower, comm, {.sharding_strategy = ShardingStrategy::kShardGradOp});
    const double expected = 0.75 * 2 * model;
    EXPECT_NEAR(static_cast<double>(bytes_per_step(*tower, *engine)), expected, 0.01 * expected);
  });
}

TEST(ShardedTraffic, HalfOfItInBfloat16) {
  run_ranks(2, [](const Communicator& comm) {
    const auto tower = make_tower();
    const double model = static_cast<double>(bytes_of(*tower));
    const auto engine = fully_shard(tower, comm, {.mixed_precision = at::kBFloat16});
    const double expected = 0.5 * 0.5 * (3 * model - 2 * model / kBlocks);
    EXPECT_NEAR(static_cast<double>(bytes_per_step(*tower, *engine)), expected, 0.01 * expected);
  });
}

TEST(ShardedTraffic, HoldsAShardAndAFewUnits) {
  run_ranks(4, [](const Communicator& comm) {
    const auto tower = make_tower();
    const auto model = bytes_of(*tower);
    const auto unit = model / kBlocks;
    const auto engine = fully_shard(tower, comm);
    for (int i = 0; i < 3; ++i) step(*tower, *engine);
    const auto stats = engine->stats();
    EXPECT_NEAR(static_cast<double>(stats.shard_bytes), static_cast<double>(model) / 4,
                0.01 * static_cast<double>(model));
    // Two units gathered, two on their way to the shards.
    EXPECT_LE(stats.peak_gathered_bytes, static_cast<std::int64_t>(4.1 * static_cast<double>(unit)));
  });
}

// Of the third step.
std::int64_t gathered_ahead(const Communicator& comm, const Fsdp& options) {
  const auto tower = make_tower();
  const auto engine = fully_shard(tower, comm, options);
  for (int i = 0; i < 2; ++i) step(*tower, *engine);
  const auto before = engine->stats().prefetched_gathers;
  step(*tower, *engine);
  return engine->stats().prefetched_gathers - before;
}

TEST(ShardedTraffic, GathersAheadWhereItIsTold) {
  run_ranks(2, [](const Communicator& comm) {
    const auto both = gathered_ahead(comm, {});
    const auto backward = gathered_ahead(comm, {.forward_prefetch = false});
    const auto forward = gathered_ahead(comm, {.backward_prefetch = BackwardPrefetch::kNone});
    EXPECT_GT(backward, 0);
    EXPECT_GT(forward, 0);
    EXPECT_EQ(backward + forward, both);
    EXPECT_GT(gathered_ahead(comm, {.backward_prefetch = BackwardPrefetch::kBackwardPost}), forward);
  });
}

TEST(ShardedTraffic, HoldsAUnitMoreWithoutALimit) {
  run_ranks(2, [](const Communicator& comm) {
    const auto peak = [&](bool limits) {
      const auto tower = make_tower();
      const auto engine = fully_shard(tower, comm, {.forward_prefetch = false, .limit_all_gathers = limits});
      const torch::NoGradGuard no_grad;
      tower->forward(at::ones({4, kTowerWidth}));
      return engine->stats().peak_gathered_bytes;
    };
    EXPECT_EQ(peak(false), 2 * peak(true));
  });
}

TEST(ShardedTraffic, MostGathersBeginAheadOfTheirUse) {
  run_ranks(2, [](const Communicator& comm) {
    const auto tower = make_tower();
    const auto engine = fully_shard(tower, comm);
    for (int i = 0; i < 2; ++i) step(*tower, *engine);
    const auto before = engine->stats();
    step(*tower, *engine);
    const auto after = engine->stats();
    EXPECT_EQ(after.gathers - before.gathers, 2 * kBlocks - 2);
    EXPECT_EQ(after.prefetched_gathers - before.prefetched_gathers, 2 * kBlocks - 3);
  });
}

struct BucketRun {
  std::int64_t reductions_per_step = 0, bytes_per_step = 0;
  std::vector<at::Tensor> values = {};
};

BucketRun run_in_buckets(const Communicator& comm, std::int64_t most_elements) {
  const auto tower = make_tower();
  ShardedEngine engine(*tower, ShardingPlan{.shards = comm.size(), .most_bucket_elements = most_elements},
                       comm);
  BucketRun run;
  for (int i = 0; i < 3; ++i) {
    const auto before = engine.stats();
    engine.backward(tower->forward(at::ones({4, kTowerWidth}) * (comm.rank() + 1)).pow(2).mean());
    const torch::NoGradGuard no_grad;
    for (const auto& [name, piece] : engine.parameters()) {
      piece.sub_(piece.grad(), 1e-3);
      piece.mutable_grad().reset();
    }
    engine.after_step();
    run.reductions_per_step = engine.stats().reductions - before.reductions;
    run.bytes_per_step = engine.stats().bytes_sent - before.bytes_sent;
  }
  engine.restore();
  for (const auto& parameter : tower->parameters()) run.values.push_back(parameter.detach());
  return run;
}

// Of a block the first matrix, its bias, and the second matrix with its bias.
TEST(ShardedTraffic, BucketsCutUnitsAndChangeNoBit) {
  run_ranks(2, [](const Communicator& comm) {
    const auto whole = run_in_buckets(comm, ShardingPlan::kNoLimit);
    const auto cut = run_in_buckets(comm, 4 * kTowerWidth * kTowerWidth + kTowerWidth);
    EXPECT_EQ(whole.reductions_per_step, kBlocks);
    EXPECT_EQ(cut.reductions_per_step, 3 * kBlocks);
    EXPECT_NEAR(double(cut.bytes_per_step), double(whole.bytes_per_step),
                0.01 * double(whole.bytes_per_step));
    for (std::size_t i = 0; i < whole.values.size(); ++i)
      EXPECT_TRUE(cut.values[i].equal(whole.values[i])) << i;
    EXPECT_EQ(run_in_buckets(comm, 0).reductions_per_step, 4 * kBlocks);  // each parameter alone
  });
}

}  // namespace
}  // namespace lockstep
