// Passes through a ShardedEngine that are not one forward and one backward: several, none, failed, of models
// with frozen and tied parameters.
#include <gtest/gtest.h>

#include <limits>

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

#include "corridor.h"

namespace lockstep {
namespace {

namespace nn = torch::nn;
using lockstep::testing::run_ranks;

constexpr ShardingStrategy kStrategies[] = {ShardingStrategy::kFullShard, ShardingStrategy::kShardGradOp,
                                            ShardingStrategy::kNoShard};

at::Tensor input_of(const Communicator& comm, int pass) {
  return corridor_input() * (comm.rank() + 1) + 0.1 * pass;
}

at::Tensor loss_of_pass(Corridor& corridor, const Communicator& comm, int pass) {
  return corridor.forward(input_of(comm, pass)).pow(2).mean();
}

// Whole gradients by name, which all ranks have.
template <class Backward>
std::map<std::string, at::Tensor> gradients_of_ddp(nn::Module& module, const Communicator& comm,
                                                   const Backward& backward) {
  DdpEngine engine(module, comm, {.find_unused_parameters = true});
  backward(engine);
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : module.named_parameters()) {
    if (item.value().grad().defined()) gradients[item.key()] = item.value().grad().clone();
  }
  return gradients;
}

void expect_pieces_of(const std::map<std::string, at::Tensor>& whole, const ShardedEngine& engine) {
  for (const auto& [name, piece] : engine.parameters()) {
    ASSERT_EQ(piece.grad().defined(), whole.contains(name)) << name;
    if (!piece.grad().defined()) continue;
    const auto begin = engine.shard_of(name, piece).begin;
    EXPECT_TRUE(piece.grad().equal(whole.at(name).view({-1}).narrow(0, begin, piece.numel()))) << name;
  }
}

// Compares what `backward(model, engine, comm)` leaves with what it leaves under ddp.
template <class Make, class Backward>
void expect_gradients_of_ddp(int ranks, const Make& make, const Backward& backward) {
  for (const auto strategy : kStrategies) {
    run_ranks(ranks, [&](const Communicator& comm) {
      const auto plain = make();
      const auto expected =
          gradients_of_ddp(*plain, comm, [&](auto& engine) { backward(*plain, engine, comm); });
      EXPECT_FALSE(expected.empty());
      const auto model = make();
      ShardedEngine engine(*model, comm, {.sharding_strategy = strategy});
      backward(*model, engine, comm);
      expect_pieces_of(expected, engine);
    });
  }
}

TEST(ShardedPasses, SeveralAveragedBackwardsAddUp) {
  const auto twice = [](Corridor& corridor, auto& engine, const Communicator& comm) {
    for (int pass = 0; pass < 2; ++pass) engine.backward(loss_of_pass(corridor, comm, pass));
  };
  run_ranks(3, [&](const Communicator& comm) {
    std::vector<std::map<std::string, at::Tensor>> means;
    for (int pass = 0; pass < 2; ++pass) {
      const auto plain = make_corridor();
      means.push_back(gradients_of_ddp(
          *plain, comm, [&](auto& engine) { engine.backward(loss_of_pass(*plain, comm, pass)); }));
    }
    for (auto& [name, gradient] : means[0]) gradient.add_(means[1].at(name));
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm);
    twice(*corridor, engine, comm);
    expect_pieces_of(means[0], engine);
  });
}

TEST(ShardedPasses, WindowsMayEndInSeveralForwardsOfOneBackward) {
  expect_gradients_of_ddp(
      2, [] { return make_corridor(); },
      [](Corridor& corridor, auto& engine, const Communicator& comm) {
        {
          const auto local = engine.no_sync();
          engine.backward(loss_of_pass(corridor, comm, 0));
        }
        engine.backward(loss_of_pass(corridor, comm, 1) + loss_of_pass(corridor, comm, 2));
      });
}

TEST(ShardedPasses, WhatIsFrozenAtSetupStaysAsItIs) {
  const auto make = [] {
    auto corridor = make_corridor();
    for (auto& parameter : corridor->block(0).parameters()) parameter.set_requires_grad(false);
    corridor->block(2).norm->weight.set_requires_grad(false);
    return corridor;
  };
  expect_gradients_of_ddp(2, make, [](Corridor& corridor, auto& engine, const Communicator& comm) {
    engine.backward(loss_of_pass(corridor, comm, 0));
  });
  run_ranks(2, [&](const Communicator& comm) {
    const auto corridor = make();
    ShardedEngine engine(*corridor, comm);
    for (const auto& [name, piece] : engine.parameters()) {
      EXPECT_FALSE(name.starts_with("blocks.0.") || name == "blocks.2.norm.weight") << name;
    }
    const auto optimizer = OptimizerFactory(AdamW{.lr = 0.1}).create(engine.parameters());
    engine.backward(loss_of_pass(*corridor, comm, 0));
    optimizer->step();
    engine.after_step();
    ShardedEngine* const engines[] = {&engine};
    const auto trained = full_state(*corridor, engines);
    if (comm.rank() != 0) return;
    const auto before = make()->named_parameters();
    for (const auto& [name, tensor] : trained)
      EXPECT_EQ(tensor.equal(before[name]), !before[name].requires_grad()) << name;
  });
}

struct TiedBlock : nn::Module {
  explicit TiedBlock(const at::Tensor& table) {
    shared = register_parameter("shared", table);
    register_module("own", own);
  }
  at::Tensor forward(const at::Tensor& x) { return x + own->forward(x.matmul(shared)).tanh(); }

  at::Tensor shared;
  nn::Linear own{kCorridorWidth, kCorridorWidth};
};

struct TiedBlocks : nn::Module {
  TiedBlocks() {
    register_module("blocks", blocks);
    const auto table = torch::randn({kCorridorWidth, kCorridorWidth}).mul_(0.1).requires_grad_();
    for (int i = 0; i < 3; ++i) blocks->push_back(std::make_shared<TiedBlock>(table));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = block->as<TiedBlock>()->forward(x);
    return x;
  }
  nn::ModuleList blocks;
};

std::shared_ptr<TiedBlocks> make_tied_blocks() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(9);
  return std::make_shared<TiedBlocks>();
}

// It belongs to none of them.
TEST(ShardedPasses, AParameterOfSeveralBlocksIsTrainedOnce) {
  expect_gradients_of_ddp(2, make_tied_blocks, [](TiedBlocks& model, auto& engine, const Communicator& comm) {
    engine.backward(model.forward(input_of(comm, 0)).pow(2).mean());
  });
  run_ranks(2, [](const Communicator& comm) {
    const auto model = make_tied_blocks();
    const ShardedEngine engine(*model, comm);
    EXPECT_EQ(engine.unit_names(), (std::vector<std::string>{"", "blocks.0", "blocks.1", "blocks.2"}));
    const auto parameters = engine.parameters();
    EXPECT_EQ(std::ranges::count_if(parameters,
                                    [](const auto& parameter) { return parameter.name.ends_with("shared"); }),
              1);
  });
}

TEST(ShardedPasses, AFailedForwardLeavesNothingBehind) {
  for (const auto strategy : kStrategies) {
    run_ranks(2, [strategy](const Communicator& comm) {
      const auto plain = make_corridor();
      const auto expected = gradients_of_ddp(
          *plain, comm, [&](auto& engine) { engine.backward(loss_of_pass(*plain, comm, 1)); });
      const auto corridor = make_corridor();
      ShardedEngine engine(*corridor, comm, {.sharding_strategy = strategy});
      for (int i = 0; i < 3; ++i) {
        const auto half = corridor->block(1).forward(corridor->block(0).forward(input_of(comm, 0)));
        EXPECT_ANY_THROW(corridor->block(2).forward(half.narrow(1, 0, 3)));
      }
      engine.backward(loss_of_pass(*corridor, comm, 1));
      expect_pieces_of(expected, engine);
    });
  }
}

TEST(ShardedPasses, InferenceModeSeesTheModelAndTrainingGoesOn) {
  for (const auto strategy : kStrategies) {
    run_ranks(2, [strategy](const Communicator& comm) {
      const auto plain = make_corridor();
      const auto whole = plain->forward(corridor_input()).detach();
      const auto expected = gradients_of_ddp(
          *plain, comm, [&](auto& engine) { engine.backward(loss_of_pass(*plain, comm, 1)); });
      const auto corridor = make_corridor();
      ShardedEngine engine(*corridor, comm, {.sharding_strategy = strategy});
      for (int i = 0; i < 2; ++i) {
        {
          const c10::InferenceMode inference;
          EXPECT_TRUE(corridor->forward(corridor_input()).equal(whole));
        }
        engine.backward(loss_of_pass(*corridor, comm, 1));
        expect_pieces_of(expected, engine);
        for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
        engine.after_step();
      }
    });
  }
}

TEST(ShardedPasses, NormsOfEveryKindAreThoseOfTheWhole) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const bool has_whole : {false, true}) {
    for (const auto strategy : kStrategies) {
      run_ranks(3, [&](const Communicator& comm) {
        const auto plain = make_corridor();
        gradients_of_ddp(*plain, comm, [&](auto& engine) { engine.backward(loss_of_pass(*plain, comm, 0)); });
        const auto corridor = make_corridor();
        Fsdp options{.sharding_strategy = strategy};
        if (has_whole) options.ignored_modules = types<nn::LayerNorm>();
        ShardedEngine engine(*corridor, comm, options);
        engine.backward(loss_of_pass(*corridor, comm, 0));
        const auto parameters = plain->parameters();
        for (const double p : {0.5, 1.0, 3.0, kInfinity}) {
          const auto expected = grad_norm(parameters, p);
          EXPECT_NEAR(engine.grad_norm(engine.parameters(), p), expected, 1e-12 * expected) << p;
        }
        EXPECT_EQ(engine.grad_norm(engine.parameters()), grad_norm(parameters));
        const auto largest = grad_norm(parameters, kInfinity);
        EXPECT_EQ(engine.clip_grad_norm(engine.parameters(), largest / 2, kInfinity), largest);
        EXPECT_NEAR(engine.grad_norm(engine.parameters(), kInfinity), largest / 2, 1e-5 * largest);
      });
    }
  }
}

TEST(ShardedPasses, ModelsThatDifferBetweenRanksAreNamed) {
  const auto named = [](const auto& change, const std::vector<std::string>& parts) {
    run_ranks(2, [&](const Communicator& comm) {
      const auto corridor = make_corridor();
      if (comm.rank() == 1) change(*corridor->block(3).up);
      test::expect_error<CollectiveMismatch>([&] { ShardedEngine(*corridor, comm); }, parts);
      EXPECT_TRUE(has_memory(corridor->block(0).up->weight));
    });
  };
  named(
      [](nn::LinearImpl& layer) {
        layer.weight.set_data(at::zeros({64, 65}));
      },
      {"blocks.3.up.weight [64, 64]", "blocks.3.up.weight [64, 65]", "rank 1"});
  named([](nn::LinearImpl& layer) { layer.bias.set_requires_grad(false); }, {"blocks.3.up.bias", "rank 1"});
}

// It would have no gradients, and train nothing.
TEST(ShardedPasses, AnOptimizerThatWasMadeBeforeIsRefused) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    const auto optimizer = OptimizerFactory(SGD{}).create(named_parameters(*corridor));
    ShardedEngine engine(*corridor, comm);
    engine.backward(loss_of_pass(*corridor, comm, 0));
    test::expect_error<ConfigError>([&] { optimizer->step(); },
                                    {"blocks.0", "sharded over the ranks", "fully_shard"});
  });
}

// Of one that is not trained for a while, too.
TEST(ShardedPasses, HooksSeeGradientsWhenTheyWereRegisteredAfterwards) {
  run_ranks(2, [](const Communicator& comm) {
    const auto expected = make_corridor(), corridor = make_corridor();
    const auto found = gradients_of_ddp(
        *expected, comm, [&](auto& engine) { engine.backward(2 * loss_of_pass(*expected, comm, 0)); });
    ShardedEngine engine(*corridor, comm);
    int calls = 0;
    for (const auto& parameter : corridor->parameters()) {
      register_post_accumulate_grad_hook(parameter, [&calls](const at::Tensor& seen) {
        ++calls;
        ASSERT_TRUE(seen.grad().defined());
        seen.mutable_grad().mul_(2);
      });
    }
    for (int pass = 0; pass < 2; ++pass) {
      corridor->block(1).up->bias.set_requires_grad(pass == 1);
      for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
      engine.backward(loss_of_pass(*corridor, comm, 0));
    }
    EXPECT_EQ(calls, 2 * static_cast<int>(corridor->parameters().size()) - 1);
    for (const auto& item : corridor->named_parameters()) {
      const auto gradient = engine.gather_elements(item.value(), engine.piece_of(item.value()).grad());
      EXPECT_TRUE(gradient.allclose(found.at(item.key()), 1e-5, 1e-7)) << item.key();
    }
  });
}

TEST(ShardedPasses, AveragedGradientsHaveNoGraph) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    ShardedEngine engine(*corridor, comm);
    test::expect_error<ConfigError>(
        [&] { engine.backward(loss_of_pass(*corridor, comm, 0), {.create_graph = true}); }, {"create_graph"});
  });
}

}  // namespace
}  // namespace lockstep
