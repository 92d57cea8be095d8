// ShardedEngine against DdpEngine: the same bits, less memory.
#include <array>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/sharded/sharded_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "strategy/module_parameters.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

#include "../ddp_support.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

// A block with odd sizes, two of whose layers are of one type.
struct OddBlock : nn::Module {
  OddBlock() {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + down->forward(at::gelu(up->forward(norm->forward(x))));
  }
  nn::LayerNorm norm{nn::LayerNormOptions({37})};
  nn::Linear up{37, 131}, down{131, 37};
};

struct OddModel : nn::Module {
  OddModel() {
    register_module("stem", stem);
    register_module("blocks", blocks);
    register_module("unused", unused);
    register_module("head", head);
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<OddBlock>());
  }
  at::Tensor forward(const at::Tensor& x) {
    auto hidden = stem->forward(x);
    for (const auto& block : *blocks) hidden = block->as<OddBlock>()->forward(hidden);
    return head->forward(hidden);
  }
  nn::Linear stem{10, 37};
  nn::ModuleList blocks;
  nn::Linear unused{5, 5};
  nn::Linear head{37, 3};
};

std::shared_ptr<OddModel> make_odd_model() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(3);
  return std::make_shared<OddModel>();
}

at::Tensor odd_loss(OddModel& model, int step, const Communicator& comm) {
  return model.forward(share(batch(step), comm)).pow(2).mean();
}

constexpr int kSteps = 50;

using Weights = std::map<std::string, at::Tensor>;

const OptimizerFactory& adamw() {
  static const OptimizerFactory factory(AdamW{.lr = 1e-2, .weight_decay = 0.1});
  return factory;
}

// Some steps of two micro-batches each, with clipping; `clip` does that for the engine.
template <class Engine, class Clip>
void train(OddModel& model, Engine& engine, Optimizer& optimizer, const Communicator& comm,
           const Clip& clip) {
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    {
      const auto local = engine.no_sync();
      engine.backward(odd_loss(model, 2 * step, comm));
    }
    engine.backward(odd_loss(model, 2 * step + 1, comm));
    clip();
    optimizer.step();
    engine.after_step();
  }
}

Weights trained_by_ddp(const Communicator& comm) {
  auto model = make_odd_model();
  DdpEngine engine(*model, comm, {.find_unused_parameters = true});
  const auto parameters = model->parameters();
  const auto optimizer = adamw().create(named_parameters(*model));
  train(*model, engine, *optimizer, comm, [&] { clip_grad_norm(parameters, 0.05); });
  Weights weights;
  for (const auto& item : model->named_parameters()) weights[item.key()] = item.value().detach().clone();
  return weights;
}

// On rank 0.
Weights trained_in_shards(const Communicator& comm, const Fsdp& options) {
  auto model = make_odd_model();
  ShardedEngine engine(*model, comm, options, /*ranks_per_node=*/2);
  const auto optimizer = adamw().create(engine.parameters());
  engine.offload_state(*optimizer);
  train(*model, engine, *optimizer, comm, [&] { engine.clip_grad_norm(optimizer->parameters(), 0.05); });
  ShardedEngine* const engines[] = {&engine};
  return full_state(*model, engines);
}

void expect_same_bits_as_ddp(int ranks, const Fsdp& options) {
  run_ranks(ranks, [&](const Communicator& comm) {
    const auto expected = trained_by_ddp(comm);
    const auto weights = trained_in_shards(comm, options);
    if (comm.rank() != 0) return;
    ASSERT_EQ(weights.size(), expected.size());
    for (const auto& [name, tensor] : expected)
      EXPECT_TRUE(weights.at(name).equal(tensor)) << name << " on " << ranks << " ranks";
  });
}

TEST(ShardedEngine, FullShardGivesTheBitsOfDdp) {
  for (const int ranks : {1, 2, 3, 4}) expect_same_bits_as_ddp(ranks, {});
}

TEST(ShardedEngine, ShardGradOpGivesTheBitsOfDdp) {
  for (const int ranks : {2, 3, 4})
    expect_same_bits_as_ddp(ranks, {.sharding_strategy = ShardingStrategy::kShardGradOp});
}

TEST(ShardedEngine, NoShardGivesTheBitsOfDdp) {
  for (const int ranks : {2, 3, 4})
    expect_same_bits_as_ddp(ranks, {.sharding_strategy = ShardingStrategy::kNoShard});
}

TEST(ShardedEngine, HybridShardGivesTheBitsOfDdp) {
  expect_same_bits_as_ddp(4, {.sharding_strategy = ShardingStrategy::kHybridShard});
  expect_same_bits_as_ddp(4,
                          {.sharding_strategy = ShardingStrategy::kHybridShardZero2, .device_mesh = {2, 2}});
}

TEST(ShardedEngine, SumsGradientsWhereAsked) {
  run_ranks(4, [](const Communicator& comm) {
    for (const int shards : {1, 2, 4}) {
      const auto gradients = [&](ReduceOp op) {
        auto model = make_odd_model();
        ShardedEngine engine(*model, ShardingPlan{.shards = shards, .gradient_op = op}, comm);
        engine.backward(odd_loss(*model, 0, comm));
        std::vector<at::Tensor> all;
        for (const auto& [name, piece] : engine.parameters()) all.push_back(piece.grad());
        return all;
      };
      const auto means = gradients(ReduceOp::kAvg), sums = gradients(ReduceOp::kSum);
      for (std::size_t i = 0; i < means.size(); ++i) {
        ASSERT_EQ(means[i].defined(), sums[i].defined());
        if (!means[i].defined()) continue;
        EXPECT_TRUE(sums[i].equal(means[i] * 4)) << shards << " shards";
      }
    }
  });
}

TEST(ShardedEngine, GivesTheSameBitsHoweverItGathers) {
  for (const auto prefetch : {BackwardPrefetch::kBackwardPost, BackwardPrefetch::kNone})
    expect_same_bits_as_ddp(2, {.backward_prefetch = prefetch, .forward_prefetch = false});
  expect_same_bits_as_ddp(2, {.auto_wrap_policy = "none"});
  expect_same_bits_as_ddp(
      2, {.auto_wrap_policy = types<nn::Linear, nn::LayerNorm>(), .limit_all_gathers = false});
}

TEST(ShardedEngine, GivesTheSameBitsFromDisk) {
  const test::TemporaryFolder folder;
  for (const int ranks : {1, 2, 3})
    expect_same_bits_as_ddp(ranks, {.cpu_offload = true, .offload_dir = folder.path()});
  expect_same_bits_as_ddp(
      2,
      {.sharding_strategy = ShardingStrategy::kNoShard, .cpu_offload = true, .offload_dir = folder.path()});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ShardedEngine, NamesADirectoryThatIsNotThere) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    test::expect_error<ConfigError>(
        [&] { ShardedEngine(*model, comm, {.cpu_offload = true, .offload_dir = "/nowhere/at/all"}); },
        {"offload_dir", "/nowhere/at/all"});
  });
}

TEST(ShardedEngine, GathersEveryUnitTwiceAndMostOfThemAhead) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    ASSERT_EQ(engine.unit_names().size(), 4U);
    const auto step = [&] {
      engine.backward(odd_loss(*model, 0, comm));
      engine.drop_accumulated_gradients();
    };
    step();
    step();
    const auto before = engine.stats();
    step();
    const auto after = engine.stats();
    // The root stays, and the last block is used by backward next.
    EXPECT_EQ(after.gathers - before.gathers, 4 + 2);
    EXPECT_EQ(after.reductions - before.reductions, 4);
    // All but the first: nothing is gathered before a step.
    EXPECT_EQ(after.prefetched_gathers - before.prefetched_gathers, 5);
  });
}

TEST(ShardedEngine, HoldsItsShardAloneBetweenSteps) {
  run_ranks(4, [](const Communicator& comm) {
    auto model = make_odd_model();
    std::int64_t bytes = 0;
    for (const auto& parameter : model->parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
    ShardedEngine engine(*model, comm);
    const auto total = at::tensor(engine.stats().shard_bytes);
    comm.all_reduce(total);
    EXPECT_EQ(total.item<std::int64_t>(), bytes);
    engine.backward(odd_loss(*model, 0, comm));
    for (const auto& parameter : model->parameters()) {
      auto& storage = *parameter.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      EXPECT_EQ(storage._mutable_data_ptr_no_checks().get(), nullptr);
      EXPECT_FALSE(parameter.grad().defined());
    }
  });
}

TEST(ShardedEngine, HybridShardHoldsACopyPerNode) {
  const auto check = [](const Fsdp& options) {
    run_ranks(4, [&](const Communicator& comm) {
      auto model = make_odd_model();
      std::int64_t bytes = 0;
      for (const auto& parameter : model->parameters())
        bytes += static_cast<std::int64_t>(parameter.nbytes());
      const ShardedEngine engine(*model, comm, options, /*ranks_per_node=*/2);
      EXPECT_EQ(engine.shards(), 2);
      const auto node = comm.split(comm.rank() / 2).value(), copies = comm.split(comm.rank() % 2).value();
      auto of_node = at::tensor(engine.stats().shard_bytes);
      node.all_reduce(of_node);
      EXPECT_EQ(of_node.item<std::int64_t>(), bytes);
      std::vector<at::Tensor> pieces;
      for (const auto& [name, piece] : engine.parameters()) pieces.push_back(piece);
      expect_same_bits(copies, flat(pieces));
    });
  };
  check({.sharding_strategy = ShardingStrategy::kHybridShard});
  check({.sharding_strategy = ShardingStrategy::kHybridShard, .device_mesh = {2, 2}});
}

TEST(ShardedEngine, RefusesRawPointersByName) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    const ShardedEngine engine(*model, comm);
    try {
      model->head->weight.data_ptr<float>();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("parameter head.weight is sharded over the ranks"));
    }
  });
}

// Shards beside the rows that come and go, and in those that stay.
constexpr KeepGathered kBothHomes[] = {KeepGathered::kWhileUsed, KeepGathered::kUntilStep};

struct ShardHomes : ::testing::TestWithParam<KeepGathered> {
  ShardingPlan plan() const { return {.shards = 2, .keep = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Keep, ShardHomes, ::testing::ValuesIn(kBothHomes));

TEST_P(ShardHomes, KeepWhatIsWrittenToParameters) {
  run_ranks(2, [this](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, plan(), comm);
    {
      const torch::NoGradGuard no_grad;
      model->blocks->at<OddBlock>(1).up->weight.fill_(0.5);
      model->blocks->at<OddBlock>(1).up->bias[3].fill_(7);
    }
    engine.forget_gathered();
    ShardedEngine* const engines[] = {&engine};
    const auto state = full_state(*model, engines);
    if (comm.rank() != 0) return;
    EXPECT_TRUE(state.at("blocks.1.up.weight").eq(0.5).all().item<bool>());
    EXPECT_EQ(state.at("blocks.1.up.bias")[3].item<float>(), 7);
    EXPECT_TRUE(state.at("blocks.0.up.weight").equal(make_odd_model()->blocks->at<OddBlock>(0).up->weight));
  });
}

TEST(ShardedEngine, NamesTheUnitsOfRanksThatDisagree) {
  const auto body = [](const Communicator& comm) {
    auto model = make_odd_model();
    const ShardedEngine engine(*model, comm);
    const torch::NoGradGuard no_grad;
    model->blocks->at<OddBlock>(comm.rank() == 0 ? 1 : 2).forward(at::ones({1, 37}));
  };
  try {
    run_ranks(2, body);
    FAIL();
  } catch (const CollectiveMismatch& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("unit blocks.1"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("unit blocks.2"));
  }
}

TEST(ShardedEngine, NamesUnitAndParameterOfAGatherAgainstAReduction) {
  std::array<std::string, 2> said;
  const auto body = [&](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm, {.sharding_strategy = "SHARD_GRAD_OP"});
    const auto loss = odd_loss(*model, comm.rank(), comm);
    try {
      if (comm.rank() == 1) return engine.backward(loss);
      engine.forget_gathered();
      const torch::NoGradGuard no_grad;
      (void)(model->stem->weight + 1);
    } catch (const CollectiveMismatch& error) {
      said[static_cast<std::size_t>(comm.rank())] = error.what();
    }
  };
  run_ranks(2, body);
  using ::testing::AllOf, ::testing::HasSubstr;
  EXPECT_THAT(said[0], AllOf(HasSubstr("all_gather"), HasSubstr("reduce_scatter"), HasSubstr("unit (root)"),
                             HasSubstr("for parameter stem.weight"), HasSubstr("GatheredParameters"),
                             HasSubstr("hold_whole()")));
  EXPECT_THAT(said[1], AllOf(HasSubstr("all_gather"), HasSubstr("reduce_scatter"),
                             HasSubstr("is unit (root)"), HasSubstr("GatheredParameters")));
}

TEST(ShardedEngine, NamesWhatOneRankUsesAfterTheOthersHaveEnded) {
  std::string said;
  try {
    run_ranks(2, [&](const Communicator& comm) {
      auto model = make_odd_model();
      const ShardedEngine engine(*model, comm);
      const torch::NoGradGuard no_grad;
      if (comm.rank() == 0) (void)model->blocks->at<OddBlock>(1).up->bias.sum();
      comm.close();
    });
    FAIL();
  } catch (const CommError& error) {
    said = error.what();
  }
  EXPECT_THAT(said, ::testing::AllOf(::testing::HasSubstr("unit blocks.1 for parameter blocks.1.up.bias"),
                                     ::testing::HasSubstr("GatheredParameters")));
}

TEST(ShardedEngine, StartsCleanAfterAFailedBackward) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    auto loss = odd_loss(*model, 0, comm);
    loss.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); });
    EXPECT_THROW(engine.backward(loss), std::runtime_error);
    engine.backward(odd_loss(*model, 0, comm));
    auto fresh = make_odd_model();
    ShardedEngine other(*fresh, comm);
    other.backward(odd_loss(*fresh, 0, comm));
    const auto mine = engine.parameters();
    const auto theirs = other.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      ASSERT_EQ(mine[i].tensor.grad().defined(), theirs[i].tensor.grad().defined()) << mine[i].name;
      if (!mine[i].tensor.grad().defined()) continue;
      EXPECT_TRUE(mine[i].tensor.grad().equal(theirs[i].tensor.grad())) << mine[i].name;
    }
  });
}

TEST(ShardedEngine, RefusesALossWithoutGraph) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    EXPECT_ANY_THROW(engine.backward(at::ones({})));
    engine.backward(odd_loss(*model, 0, comm));
  });
}

TEST(ShardedEngine, ForgetsWaitingGradientsOfSomeParameters) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    {
      const auto local = engine.no_sync();
      engine.backward(odd_loss(*model, 0, comm));
    }
    EXPECT_TRUE(model->head->weight.grad().defined());
    const auto all = engine.parameters();
    engine.drop_accumulated_gradients(std::span(all).last(2));
    EXPECT_FALSE(model->head->weight.grad().defined());
    EXPECT_TRUE(model->stem->weight.grad().defined());
    engine.after_step();  // of an optimizer of other parameters
    EXPECT_TRUE(model->stem->weight.grad().defined());
    engine.drop_accumulated_gradients();
    EXPECT_FALSE(model->stem->weight.grad().defined());
  });
}

TEST(ShardedEngine, StartsWithTheModelOfRank0) {
  run_ranks(2, [](const Communicator& comm) {
    for (const bool syncs : {true, false}) {
      auto model = make_odd_model();
      if (comm.rank() == 1) {
        const torch::NoGradGuard no_grad;
        for (const auto& parameter : model->parameters()) at::Tensor(parameter).zero_();
      }
      ShardedEngine engine(*model, comm, {.sync_module_states = syncs});
      const auto expected = make_odd_model();
      bool is_equal = true;
      for (const auto& item : expected->named_parameters())
        is_equal = is_equal && model->named_parameters()[item.key()].equal(item.value());
      EXPECT_EQ(is_equal, syncs);
    }
  });
}

TEST_P(ShardHomes, KeepAStepAfterAWrite) {
  run_ranks(2, [this](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, plan(), comm);
    const auto optimizer = adamw().create(engine.parameters());
    engine.backward(odd_loss(*model, 0, comm));
    {
      const torch::NoGradGuard no_grad;
      model->head->weight.clamp_(-100, 100);
    }
    const auto before = model->head->weight.clone();
    optimizer->step();
    engine.after_step();
    EXPECT_FALSE(model->head->weight.equal(before));
  });
}

TEST_P(ShardHomes, KeepTheDigitsOfWhatIsNotWritten) {
  run_ranks(2, [this](const Communicator& comm) {
    const auto whole = make_odd_model();
    auto model = make_odd_model();
    auto half = plan();
    half.mixed_precision = {.param_dtype = at::kBFloat16};
    ShardedEngine engine(*model, half, comm);
    {
      const torch::NoGradGuard no_grad;
      model->head->weight[0].zero_();
    }
    ShardedEngine* const engines[] = {&engine};
    const auto state = full_state(*model, engines);
    if (comm.rank() != 0) return;
    EXPECT_TRUE(state.at("head.weight")[1].equal(whole->head->weight[1]));
    EXPECT_EQ(state.at("head.weight")[0].abs().max().item<float>(), 0);
  });
}

TEST(ShardedEngine, ForgetsAFailedBackwardWhoseGradientsWereUnderWay) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    auto hidden = model->stem->forward(share(batch(0), comm));
    hidden.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no"); });
    for (const auto& block : *model->blocks) hidden = block->as<OddBlock>()->forward(hidden);
    EXPECT_THROW(engine.backward(model->head->forward(hidden).pow(2).mean()), std::runtime_error);
    for (const auto& [name, piece] : engine.parameters()) EXPECT_FALSE(piece.grad().defined()) << name;
  });
}

TEST(ShardedEngine, SaysThatItHasEnded) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    engine.restore();
    EXPECT_THROW(engine.backward(odd_loss(*model, 0, comm)), ConfigError);
    EXPECT_THROW(engine.restore(), ConfigError);
    odd_loss(*model, 0, comm).backward();
    EXPECT_TRUE(model->head->weight.grad().defined());
  });
}

TEST(ShardedEngine, RefusesWhatIsShardedAlready) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    const ShardedEngine engine(*model, comm);
    EXPECT_THROW(ShardedEngine(*model->head, comm), ConfigError);
    EXPECT_TRUE(engine.still_holds(*model));
    EXPECT_FALSE(engine.still_holds(*model->head));
  });
}

TEST(ShardedEngine, ReleasesTheModelInEvaluationUnderShardGradOp) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    const ShardedEngine engine(*model, comm, {.sharding_strategy = ShardingStrategy::kShardGradOp});
    const torch::NoGradGuard no_grad;
    model->forward(share(batch(0), comm));
    EXPECT_ANY_THROW(model->blocks->at<OddBlock>(0).up->weight.data_ptr<float>());
  });
}

TEST(ShardedEngine, LetsARankGoOnAloneWithTheWholeModel) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    const auto expected = make_odd_model()->forward(batch(0));
    engine.gather_all();
    const torch::NoGradGuard no_grad;
    if (comm.rank() == 1) {
      EXPECT_TRUE(model->forward(batch(0)).equal(expected));
    }
    engine.forget_gathered();
    EXPECT_TRUE(model->forward(batch(0)).equal(expected));
  });
}

TEST(ShardedEngine, NamesAModuleThatWasConverted) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    ShardedEngine engine(*model, comm);
    model->head->to(at::kDouble);
    const auto loss = model->head->forward(at::ones({1, 37}, at::kDouble)).sum();
    try {
      engine.backward(loss);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("head.weight is no longer what was sharded"));
    }
  });
}

TEST(ShardedEngine, RefusesMeshesThatDoNotFit) {
  const auto refused = [](const Fsdp& options, int ranks) {
    run_ranks(ranks, [&](const Communicator& comm) {
      auto model = make_odd_model();
      EXPECT_THROW(ShardedEngine(*model, comm, options, 2), ConfigError);
    });
  };
  refused({.sharding_strategy = ShardingStrategy::kHybridShard, .device_mesh = {2, 2}}, 3);
  refused({.sharding_strategy = ShardingStrategy::kHybridShard}, 3);
  refused({.device_mesh = {1, 2}}, 2);
}

TEST(ShardedEngine, ComputesInAnotherType) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    auto whole = make_odd_model();
    whole->to(at::kBFloat16);
    ShardedEngine engine(
        *model, comm,
        {.mixed_precision = MixedPrecision{.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}});
    const auto x = share(batch(0), comm);
    const auto y = model->forward(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    const auto expected = whole->forward(x.to(at::kBFloat16));
    EXPECT_TRUE(y.equal(expected));
    expected.pow(2).mean().backward();
    engine.backward(y.pow(2).mean());
    const auto gradients = whole->named_parameters();
    for (const auto& [name, piece] : engine.parameters()) {
      EXPECT_EQ(piece.scalar_type(), at::kFloat);
      if (!piece.grad().defined()) continue;
      auto mean = gradients[name].grad().to(at::kFloat);
      comm.all_reduce(mean, ReduceOp::kAvg);
      const auto begin = engine.shard_of(name, piece).begin;
      EXPECT_TRUE(piece.grad().equal(mean.view({-1}).narrow(0, begin, piece.numel()))) << name;
    }
  });
}

TEST(ShardedEngine, KeepsIgnoredModulesWhole) {
  expect_same_bits_as_ddp(2, {.ignored_modules = types<nn::LayerNorm>()});
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    const ShardedEngine engine(*model, comm, {.ignored_modules = types<nn::LayerNorm>()});
    EXPECT_EQ(engine.shard_of(model->blocks->at<OddBlock>(0).norm->weight)->elements.numel(), 37);
    model->blocks->at<OddBlock>(0).norm->weight.data_ptr<float>();
  });
}

TEST(ShardedEngine, LoadsWholeTensorsAndRuns) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    Weights changed;
    for (const auto& item : model->named_parameters()) changed[item.key()] = item.value().detach() + 1;
    ShardedEngine engine(*model, comm);
    ShardedEngine* const engines[] = {&engine};
    StateTree whole;
    for (const auto& [name, tensor] : changed) whole.set(name, tensor);
    load_sharded_state(*model, engines, whole);
    const auto runs = sharded_state(*model, engines).clone();
    {
      const torch::NoGradGuard no_grad;
      for (const auto& parameter : model->parameters()) at::Tensor(parameter).zero_();
    }
    load_sharded_state(*model, engines, runs);
    const auto state = full_state(*model, engines);
    for (const auto& [name, tensor] : state) EXPECT_TRUE(tensor.equal(changed.at(name))) << name;
  });
}

TEST(ShardedEngine, GivesTheParametersBack) {
  run_ranks(2, [](const Communicator& comm) {
    auto model = make_odd_model();
    {
      ShardedEngine engine(*model, comm);
      engine.restore();
    }
    const auto fresh = make_odd_model();
    for (const auto& item : fresh->named_parameters())
      EXPECT_TRUE(model->named_parameters()[item.key()].equal(item.value())) << item.key();
    model->head->weight.data_ptr<float>();
  });
}

}  // namespace
}  // namespace lockstep
