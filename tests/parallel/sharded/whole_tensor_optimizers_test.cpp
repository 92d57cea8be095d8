// Optimizers that look at whole tensors, over shards: the bits of ddp.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/strategy/deepspeed.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "strategy/deepspeed_strategy.h"
#include "strategy/module_parameters.h"
#include "support/temporary_folder.h"

#include "../ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

// Matrices that are wide, tall, cut by shards and not, and one that is never used.
struct UnlikeMatrices : nn::Module {
  UnlikeMatrices() {
    register_module("layers", layers);
    register_module("unused", unused);
    register_module("lm_head", head);
    for (const auto& [from, to] : {std::pair{10, 131}, {131, 67}, {67, 67}, {67, 5}})
      layers->push_back(nn::Linear(from, to));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers) x = layer->as<nn::Linear>()->forward(x).tanh();
    return head->forward(x);
  }
  nn::ModuleList layers;
  nn::Linear unused{7, 7};
  nn::Linear head{5, 3};
};

std::shared_ptr<UnlikeMatrices> make_matrices() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(12);
  return std::make_shared<UnlikeMatrices>();
}

using NamedValues = std::map<std::string, at::Tensor>;

// Some steps with clipping, of which the second begins with other settings, as a schedule would have it.
template <class Engine, class Clip>
void train_matrices(UnlikeMatrices& model, Engine& engine, Optimizer& optimizer, const Communicator& comm,
                    const Clip& clip) {
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    engine.backward(model.forward(share(batch(step), comm)).pow(2).mean());
    clip();
    for (auto& group : optimizer.groups()) group.lr *= 0.9;
    optimizer.step();
    engine.after_step();
  }
}

NamedValues state_of_ddp(Optimizer& optimizer) {
  NamedValues values;
  for (const auto& entry : optimizer.state()) values[entry.kind + " of " + entry.parameter] = entry.tensor;
  return values;
}

NamedValues with_ddp(const Communicator& comm, const OptimizerFactory& factory, NamedValues& state) {
  auto model = make_matrices();
  DdpEngine engine(*model, comm, {.find_unused_parameters = true});
  const auto parameters = model->parameters();
  const auto optimizer = factory.create(named_parameters(*model));
  train_matrices(*model, engine, *optimizer, comm, [&] { clip_grad_norm(parameters, 0.05); });
  state = state_of_ddp(*optimizer);
  NamedValues weights;
  for (const auto& item : model->named_parameters()) weights[item.key()] = item.value().detach().clone();
  return weights;
}

// Each rank compares its pieces of the state, rank 0 the weights.
void expect_bits_of_ddp(const Communicator& comm, const OptimizerFactory& factory, const ShardingPlan& plan) {
  NamedValues state;
  const auto expected = with_ddp(comm, factory, state);
  auto model = make_matrices();
  ShardedEngine engine(*model, plan, comm);
  const auto optimizer = factory.create(engine.parameters(), engine.exchange());
  EXPECT_TRUE(optimizer->takes_pieces());
  engine.offload_state(*optimizer);
  train_matrices(*model, engine, *optimizer, comm,
                 [&] { engine.clip_grad_norm(optimizer->parameters(), 0.05); });
  ShardedEngine* const engines[] = {&engine};
  for (const auto& [name, tensor] : full_state(*model, engines))
    EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
  for (const auto& entry : optimizer->state()) {
    const auto& whole = state.at(entry.kind + " of " + entry.parameter);
    if (entry.kind == "step") {
      EXPECT_EQ(entry.tensor.item<std::int64_t>(), whole.item<std::int64_t>()) << entry.parameter;
      continue;
    }
    const auto shard = engine.shard_of(entry.parameter, entry.tensor);
    EXPECT_TRUE(entry.tensor.equal(whole.flatten().narrow(0, shard.begin, entry.tensor.numel())))
        << entry.kind << " of " << entry.parameter;
  }
}

void expect_bits_of_ddp(const OptimizerFactory& factory) {
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, [&](const Communicator& comm) {
      for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(c10::str("stage ", stage, " on ", ranks, " ranks"));
        const auto type = deepspeed::Dtype::kFp32;
        expect_bits_of_ddp(comm, factory,
                           detail::plan_of(deepspeed_config({.stage = stage}, type), type, ranks));
      }
      SCOPED_TRACE(c10::str("fsdp on ", ranks, " ranks"));
      expect_bits_of_ddp(comm, factory, plan_of(Fsdp{.ignored_modules = types<nn::Linear>()}, ranks, 1));
      expect_bits_of_ddp(comm, factory, plan_of(Fsdp{.auto_wrap_policy = types<nn::Linear>()}, ranks, 1));
      if (ranks == 4) {
        const Fsdp hybrid{.sharding_strategy = ShardingStrategy::kHybridShard, .device_mesh = {2, 2}};
        expect_bits_of_ddp(comm, factory, plan_of(hybrid, ranks, 1));
      }
    });
  }
}

TEST(WholeTensorOptimizers, LambOverShardsHasTheBitsOfDdp) {
  expect_bits_of_ddp(Lamb{.lr = 1e-2, .weight_decay = 0.1, .groups = {{.pattern = "*.bias", .lr = 1e-3}}});
}

TEST(WholeTensorOptimizers, MuonOverShardsHasTheBitsOfDdp) {
  expect_bits_of_ddp(Muon{.lr = 1e-2});
  expect_bits_of_ddp(Muon{.lr = 1e-2, .nesterov = false, .adjust_lr_fn = AdjustLr::kMatchRmsAdamw});
}

// In tiles that hold a part of the state, whose order is not that of ranks with other pieces.
TEST(WholeTensorOptimizers, HaveTheBitsOfDdpWithTheirStateOnDisk) {
  const test::TemporaryFolder folder;
  for (const OptimizerFactory& factory :
       {OptimizerFactory(Lamb{.lr = 1e-2, .weight_decay = 0.1}), OptimizerFactory(Muon{.lr = 1e-2})}) {
    run_ranks(2, [&](const Communicator& comm) {
      for (const double swapped_share : {1.0, 0.4}) {
        const auto type = deepspeed::Dtype::kFp32;
        auto plan = detail::plan_of(deepspeed_config({.stage = 3}, type), type, 2);
        plan.offload = DiskOffload{.directory = folder.path(),
                                   .parameters = true,
                                   .optimizer = true,
                                   .optimizer_share = swapped_share,
                                   .tile_elements = 2000};
        expect_bits_of_ddp(comm, factory, plan);
      }
    });
  }
}

// Other ranks have gone amid a step: of the state a part is new, of the parameters nothing.
struct ExchangeThatFails_Fake final : PieceExchange {
  std::vector<std::int64_t> shape_of(const std::string&) const override { return {8, 8}; }
  at::Tensor join_blocks(std::span<const std::string>, const at::Tensor& mine) override {
    require_ranks();
    return mine;
  }
  void change_whole(std::span<Part>, const Change&) override { require_ranks(); }
  void require_ranks() const {
    if (fails) throw CommError("comm", {.what = "a rank is gone"});
  }
  bool fails = true;
};

TEST(WholeTensorOptimizers, RefuseToGoOnFromAStepThatFailedHalfWay) {
  for (const OptimizerFactory& factory : {OptimizerFactory(Lamb{}), OptimizerFactory(Muon{})}) {
    const auto exchange = std::make_shared<ExchangeThatFails_Fake>();
    const auto piece = at::ones({64}).requires_grad_();
    const auto optimizer = factory.create({{"weight", piece}}, exchange);
    const auto before = state_of(*optimizer);
    piece.mutable_grad() = at::ones({64});
    EXPECT_THROW(optimizer->step(), CommError);
    EXPECT_THROW(optimizer->step(), IoError);
    EXPECT_THROW((void)optimizer->state(), IoError);
    exchange->fails = false;
    load_state(*optimizer, before);
    optimizer->step();
  }
}

TEST(WholeTensorOptimizers, SayThatTheModelIsNotShardedAnyMore) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_matrices();
    std::unique_ptr<Optimizer> optimizer;
    {
      const ShardedEngine engine(*model, comm);
      optimizer = OptimizerFactory(Lamb{}).create(engine.parameters(), engine.exchange());
      for (const auto& piece : optimizer->parameters())
        piece.tensor.mutable_grad() = at::ones_like(piece.tensor);
    }
    EXPECT_THROW(optimizer->step(), ConfigError);
  });
}

}  // namespace
}  // namespace lockstep
