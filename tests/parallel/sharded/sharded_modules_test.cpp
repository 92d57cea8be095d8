// Which modules of the process are sharded, after engines have ended and models are gone.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/fully_shard.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "corridor.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
