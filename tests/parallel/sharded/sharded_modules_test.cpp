// Which modules of the process are sharded, after engines have ended and models are gone.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/comm/init.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include <stdexcept>

#include "corridor.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using lockstep::test::expect_error;
using lockstep::testing::run_ranks;

TEST(ShardedModules, AModuleIsShardedAnewAfterItsEngineHasEnded) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    const auto& weight = corridor->block(1).up->weight;
    const auto first = fully_shard(corridor, comm);
    EXPECT_EQ(sharded_engine_of(weight), first);
    EXPECT_FALSE(first->is_over());
    first->restore();
    EXPECT_TRUE(first->is_over());
    EXPECT_EQ(sharded_engine_of(weight), nullptr);
    EXPECT_TRUE(sharded_engines(*corridor).empty());
    restore_sharded(*corridor);  // is whole already
    const auto second = fully_shard(corridor, comm);
    EXPECT_EQ(sharded_engine_of(weight), second);
    second->restore();
  });
}

TEST(ShardedModules, APartOfOneIsNotRestoredAlone) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    const auto engine = fully_shard(corridor, comm);
    expect_error<ConfigError>([&] { restore_sharded(*corridor->block(1).up); },
                              {"has a part of a module that is sharded", "parameter weight"});
    EXPECT_FALSE(engine->is_over());
    restore_sharded(*corridor);
    restore_sharded(*corridor->block(1).up);
  });
}

TEST(ShardedModules, OptionsThatDifferBetweenRanksAreNamed) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    const auto shard = [&](const Fsdp& options) { (void)fully_shard(corridor, comm, options); };
    const bool is_first = comm.rank() == 0;
    expect_error<CollectiveMismatch>(
        [&] { shard({.sharding_strategy = is_first ? "FULL_SHARD" : "NO_SHARD"}); },
        {"the ranks' options differ", "number of shards 2 on rank 0", "number of shards 1 on rank 1"});
    expect_error<CollectiveMismatch>([&] { shard({.forward_prefetch = is_first}); },
                                     {"forward_prefetch true on rank 0", "forward_prefetch false on rank 1"});
    expect_error<CollectiveMismatch>(
        [&] { shard({.cpu_offload = is_first}); },
        {"on disk parameters and optimizer state on rank 0", "on disk none on rank 1"});
    shard({.offload_dir = is_first ? "/tmp" : "/var/tmp"});  // a rank's own affair
    restore_sharded(*corridor);
  });
}

TEST(ShardedModules, AnEngineThatHasEndedIsNotKept) {
  run_ranks(1, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    auto engine = fully_shard(corridor, comm);
    const std::weak_ptr<ShardedEngine> ended = engine;
    engine->restore();
    engine.reset();
    forget_dropped_sharded();
    EXPECT_TRUE(ended.expired());
  });
}

// By one rank: the ranks of a test share what the process knows.
TEST(ShardedModules, ADroppedModelIsGoneBeforeTheNextOneIsSharded) {
  run_ranks(1, [](const Communicator& comm) {
    auto corridor = make_corridor();
    const std::weak_ptr<ShardedEngine> dropped = fully_shard(corridor, comm);
    corridor.reset();
    const auto next = make_corridor();
    EXPECT_THROW(fully_shard(next, comm, {.device_mesh = {3, 3}}), ConfigError);
    EXPECT_TRUE(dropped.expired());
  });
}

// The other ranks wait for a group as long as anybody here has it.
TEST(ShardedModules, TheEndOfAGroupLetsGoOfDroppedModels) {
  run_ranks(1, [](const Communicator& comm) {
    std::weak_ptr<ShardedEngine> dropped;
    try {
      const ProcessGroup group(comm);
      dropped = fully_shard(make_corridor(), group);
      EXPECT_FALSE(dropped.expired());
      throw std::runtime_error("a rank that leaves");
    } catch (const std::runtime_error&) {
    }
    EXPECT_TRUE(dropped.expired());
  });
}

TEST(ShardedModules, RefuseWhatCannotBeSharded) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    expect_error<ConfigError>([&] { fully_shard(nullptr, comm); }, {"module", "null"});
    expect_error<ConfigError>([&] { fully_shard(corridor, comm, {}, 0); },
                              {"ranks_per_node", ">= 1", "got 0"});
    for (const auto* hybrid : {"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
      expect_error<ConfigError>([&] { fully_shard(corridor, comm, {.sharding_strategy = hybrid}); },
                                {hybrid, "device_mesh", "ranks_per_node"});
    EXPECT_TRUE(sharded_engines(*corridor).empty());
    fully_shard(corridor, comm, {.sharding_strategy = "HYBRID_SHARD", .device_mesh = {2, 1}})->restore();
  });
}

TEST(ShardedModules, NameBuffersInTheMemoryOfParameters) {
  run_ranks(2, [](const Communicator& comm) {
    torch::nn::Sequential model(torch::nn::Linear(4, 4));
    model->register_buffer("first_row", model[0]->as<torch::nn::Linear>()->weight.detach()[0]);
    for (const auto* strategy : {"FULL_SHARD", "NO_SHARD"}) {
      expect_error<ConfigError>([&] { fully_shard(model.ptr(), comm, {.sharding_strategy = strategy}); },
                                {"buffer first_row in the memory of parameter 0.weight"});
    }
  });
}

TEST(ShardedModules, NoticeAModuleThatWasChanged) {
  run_ranks(2, [](const Communicator& comm) {
    const auto backward = [&](const char* what, const auto& change) {
      const auto corridor = make_corridor();
      const auto engine = fully_shard(corridor, comm);
      engine->backward(corridor->forward(at::ones({2, kCorridorWidth})).sum());
      change(*corridor);
      const auto loss = torch::ones({}, torch::requires_grad());
      expect_error<ConfigError>([&] { engine->backward(loss + 1); },
                                {"changed after it was set up for sharding", what});
    };
    backward("parameter extra; expected not there; got added",
             [](torch::nn::Module& module) { module.register_parameter("extra", at::ones({3})); });
    backward("parameter", [](torch::nn::Module& module) {
      module.replace_module(module.named_children().front().key(), torch::nn::Linear(3, 3));
    });
  });
}

TEST(ShardedModules, RefuseOptimizersOfWholeTensors) {
  run_ranks(2, [](const Communicator& comm) {
    const auto corridor = make_corridor();
    const auto engine = fully_shard(corridor, comm);
    for (const auto& factory :
         {OptimizerFactory(Muon{}), OptimizerFactory(Lamb{}), OptimizerFactory(LBFGS{})})
      expect_error<ConfigError>([&] { factory.create(engine->parameters()); },
                                {"whole tensors", "exchange()", "a piece of "});
    EXPECT_NE(OptimizerFactory(Lamb{}).create(engine->parameters(), engine->exchange()), nullptr);
    EXPECT_NE(OptimizerFactory(AdamW{}).create(engine->parameters()), nullptr);
    engine->restore();
    EXPECT_NE(OptimizerFactory(LBFGS{}).create(named_parameters(*corridor)), nullptr) << "whole again";
  });
}

}  // namespace
}  // namespace lockstep
