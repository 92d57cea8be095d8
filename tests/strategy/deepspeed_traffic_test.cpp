// What each stage puts on the wire, in sizes of the model: a gather or a reduction of all of it is 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>
#include <lockstep/torch.h>

#include "strategy/deepspeed_strategy.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using deepspeed::Dtype;
using lockstep::testing::CountingBackend;
using lockstep::testing::run_ranks;

constexpr std::int64_t kWidth = 768;
constexpr int kUnits = 6;
constexpr int kMicroBatches = 4;

nn::Sequential tower() {
  nn::Sequential layers;
  for (int i = 0; i < kUnits; ++i) layers->push_back(nn::Linear(kWidth, kWidth));
  return layers;
}

ShardingPlan plan_from(const std::string& zero, Dtype dtype, int ranks) {
  const auto config = parse_deepspeed_config("{\"zero_optimization\": " + zero + "}", "ds.json").config;
  return detail::plan_of(config, dtype, ranks);
}

// A step of several micro-batches, which are averaged one by one or as a window.
void step(nn::Sequential& layers, ShardedEngine& engine, bool averages_each, Dtype dtype = Dtype::kFp32) {
  const auto input = at::ones({2, kWidth}, dtype == Dtype::kFp32 ? at::kFloat : at::kBFloat16);
  for (int i = 1; i <= kMicroBatches; ++i) {
    const auto loss = layers->forward(input).pow(2).mean();
    if (i == kMicroBatches || averages_each) {
      engine.backward(loss);
    } else {
      const auto local = engine.no_sync();
      engine.backward(loss);
    }
  }
  for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
  engine.after_step();
}

struct Traffic {
  double gathers = 0, reductions = 0;
};

// Of the third step, when the order of units is known.
Traffic traffic_of(const Communicator& comm, const std::string& zero, bool averages_each,
                   Dtype dtype = Dtype::kFp32) {
  auto layers = tower();
  std::int64_t elements = 0;
  for (const auto& parameter : layers->parameters()) elements += parameter.numel();
  CountingBackend counted(comm);
  ShardedEngine engine(*layers, plan_from(zero, dtype, comm.size()), counted.communicator());
  for (int i = 0; i < 2; ++i) step(layers, engine, averages_each, dtype);
  counted.clear();
  step(layers, engine, averages_each, dtype);
  const auto model = static_cast<double>(elements * (dtype == Dtype::kFp32 ? 4 : 2));
  return {static_cast<double>(counted.bytes("all_gather")) / model,
          static_cast<double>(counted.bytes("reduce_scatter")) / model};
}

// Shards begin at pages, which adds a little.
void expect_traffic(const Traffic& found, const Traffic& expected, const std::string& what) {
  EXPECT_NEAR(found.gathers, expected.gathers, 0.02 * expected.gathers) << what;
  EXPECT_NEAR(found.reductions, expected.reductions, 0.02 * expected.reductions) << what;
}

TEST(DeepSpeedTraffic, Stages1And2SendTwiceTheModel) {
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, [](const Communicator& comm) {
      // DeepSpeed's stage 1 reduces to all (2) and gathers (1); its stage 2 does so for each micro-batch.
      expect_traffic(traffic_of(comm, R"({"stage": 1})", false), {1, 1}, "stage 1");
      expect_traffic(traffic_of(comm, R"({"stage": 2})", true), {1, kMicroBatches}, "stage 2");
      expect_traffic(traffic_of(comm, R"({"stage": 2})", true, Dtype::kBf16), {1, kMicroBatches}, "in bf16");
    });
  }
}

// Of each micro-batch one gather where all may stay for backward, two where nothing may.
TEST(DeepSpeedTraffic, Stage3GathersAsItsLimitsSay) {
  run_ranks(2, [](const Communicator& comm) {
    expect_traffic(traffic_of(comm, R"({"stage": 3, "stage3_param_persistence_threshold": 0})", true),
                   {kMicroBatches, kMicroBatches}, "all live");
    const auto none = traffic_of(comm, R"({"stage": 3, "stage3_param_persistence_threshold": 0,
                                           "stage3_max_live_parameters": 0})",
                                 true);
    // But for the two units that forward ends and backward begins with, and the one that is used next.
    expect_traffic(none, {(2 - 3.0 / kUnits) * kMicroBatches, kMicroBatches}, "none live");
  });
}

// Shards of two ranks: gathers and reductions go to one neighbour, and sums of half the model (an all-reduce
// of two ranks sends as much) to the other copy.
TEST(DeepSpeedTraffic, MicsStaysAmongNeighboursButForItsSums) {
  run_ranks(4, [](const Communicator& comm) {
    const auto sent = [&](const std::string& shards) {
      auto layers = tower();
      std::int64_t bytes = 0;
      for (const auto& parameter : layers->parameters())
        bytes += static_cast<std::int64_t>(parameter.nbytes());
      const auto zero = R"({"stage": 3, "stage3_param_persistence_threshold": 0)" + shards + "}";
      ShardedEngine engine(*layers, plan_from(zero, Dtype::kFp32, comm.size()), comm);
      for (int i = 0; i < 2; ++i) step(layers, engine, true);
      const auto before = engine.stats().bytes_sent;
      step(layers, engine, true);
      return static_cast<double>(engine.stats().bytes_sent - before) / static_cast<double>(bytes);
    };
    // A gather sends (shards - 1) / shards of the model from each rank, and so does a reduction.
    EXPECT_NEAR(sent(""), 0.75 * 2 * kMicroBatches, 0.1);
    EXPECT_NEAR(sent(R"(, "mics_shard_size": 2)"), 0.5 * 2 * kMicroBatches + 0.5 * kMicroBatches, 0.1);
  });
}

}  // namespace
}  // namespace lockstep
