// What is particular to one environment; what all share is in the contract suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/cluster/torch_environments.h>

#include "cluster/scoped_variables.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScopedVariables;
using testing::Variables;

Variables torchrun(const Variables& changes = {}) {
  Variables variables = changes;
  variables.merge(Variables{{"TORCHELASTIC_RUN_ID", "none"},
                            {"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "h"},
                            {"MASTER_PORT", "29500"}});
  return variables;
}

template <class F>
std::string config_error(F&& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

std::string torchelastic_error(const Variables& variables) {
  const ScopedVariables scope(variables);
  return config_error([] { TorchElasticEnvironment(); });
}

TEST(TorchElasticEnvironment, RefusesRanksBeyondTheWorld) {
  EXPECT_THAT(torchelastic_error(torchrun({{"RANK", "2"}})),
              AllOf(HasSubstr("RANK"), HasSubstr("\"2\""), HasSubstr("WORLD_SIZE"), HasSubstr("torchrun")));
  EXPECT_THAT(torchelastic_error(torchrun({{"LOCAL_RANK", "5"}})), HasSubstr("LOCAL_RANK"));
  EXPECT_THAT(torchelastic_error(torchrun({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}})),
              AllOf(HasSubstr("LOCAL_RANK"), HasSubstr("LOCAL_WORLD_SIZE - 1")));
  EXPECT_THAT(torchelastic_error(torchrun({{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE"));
  for (const auto* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"})  // memory and loops are of its size
    EXPECT_THAT(torchelastic_error(torchrun({{name, "2147483647"}})),
                AllOf(HasSubstr(name), HasSubstr("1000000")));
  EXPECT_THAT(torchelastic_error(torchrun({{"MASTER_PORT", "65536"}})), HasSubstr("65535"));
  for (const char* address : {"", "tcp://head", "head:29500", "a, b"})
    EXPECT_THAT(torchelastic_error(torchrun({{"MASTER_ADDR", address}})),
                AllOf(HasSubstr("MASTER_ADDR"), HasSubstr(address), HasSubstr("without scheme and port")));
}

TEST(TorchElasticEnvironment, NamesTheMissingVariable) {
  for (const std::string name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
    auto variables = torchrun();
    variables.erase(name);
    EXPECT_THAT(torchelastic_error(variables), AllOf(HasSubstr(name), HasSubstr("unset")));
  }
}

TEST(TorchElasticEnvironment, WarnsOnRankZeroWhereTheMainAddressIsADefault) {
  auto variables = torchrun({{"RANK", "0"}});
  variables.erase("MASTER_ADDR");
  variables.erase("MASTER_PORT");
  const ScopedVariables scope(variables);
  ::testing::internal::CaptureStderr();
  const TorchElasticEnvironment environment;
  const auto warning = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(environment.main_address(), "127.0.0.1");
  EXPECT_EQ(environment.main_port(), 12910);
  EXPECT_THAT(warning, AllOf(HasSubstr("MASTER_ADDR"), HasSubstr("127.0.0.1"), HasSubstr("MASTER_PORT"),
                             HasSubstr("12910")));
}

TEST(TorchElasticEnvironment, NamesBothSidesWhenSettingsDisagree) {
  const ScopedVariables scope(torchrun());
  const TorchElasticEnvironment environment;
  EXPECT_THAT(config_error([&] { environment.validate_settings(3, 2); }),
              AllOf(HasSubstr("WORLD_SIZE = 2"), HasSubstr("devices=3"), HasSubstr("num_nodes=2"),
                    HasSubstr("--nproc-per-node=3"), HasSubstr("--nnodes=2")));
}

TEST(TorchElasticEnvironment, NamesTheLauncherThatSetItsVariables) {
  auto variables = torchrun();
  variables["LOCKSTEP_LAUNCHED"] = "run";
  const ScopedVariables scope(variables);
  const TorchElasticEnvironment environment;
  EXPECT_THAT(config_error([&] { environment.validate_settings(3, 2); }),
              AllOf(HasSubstr("that lockstep run started"), HasSubstr("start lockstep run with"),
                    ::testing::Not(HasSubstr("torchrun"))));
}

TEST(LightningEnvironment, IsOneProcessByDefault) {
  const ScopedVariables scope({{"RANK", "5"}, {"WORLD_SIZE", "9"}});
  const LightningEnvironment environment;
  EXPECT_FALSE(environment.creates_processes_externally());
  EXPECT_EQ(environment.main_address(), "127.0.0.1");
  EXPECT_EQ(environment.world_size(), 1);
  EXPECT_EQ(environment.global_rank(), 0);
  EXPECT_EQ(environment.local_rank(), 0);
  EXPECT_EQ(environment.node_rank(), 0);
}

TEST(LightningEnvironment, PicksAFreePortAndKeepsIt) {
  const ScopedVariables scope({});
  const LightningEnvironment environment;
  EXPECT_GE(environment.main_port(), 1024);
  EXPECT_EQ(environment.main_port(), environment.main_port());
}

TEST(LightningEnvironment, TakesTheNodeFromGroupRankUnlessNodeRankIsSet) {
  const ScopedVariables group(Variables{{"GROUP_RANK", "4"}});
  EXPECT_EQ(LightningEnvironment().node_rank(), 4);
  const ScopedVariables both({{"GROUP_RANK", "4"}, {"NODE_RANK", "6"}});
  EXPECT_EQ(LightningEnvironment().node_rank(), 6);
}

TEST(LightningEnvironment, RefusesSettingsThatCannotBe) {
  const ScopedVariables scope({});
  LightningEnvironment environment;
  EXPECT_THAT(config_error([&] { environment.set_world_size(0); }), HasSubstr("world size"));
  EXPECT_THAT(config_error([&] { environment.set_global_rank(-1); }), HasSubstr("global rank"));
}

TEST(LightningEnvironment, RefusesVariablesOfAJobOfAnotherSize) {
  struct Row {
    Variables variables;
    int devices, nodes;
    std::string named;  // empty: accepted
  };
  const Row rows[] = {
      {{{"WORLD_SIZE", "4"}}, 4, 1, ""},
      {{{"WORLD_SIZE", "1"}}, 4, 1, ""},
      {{{"WORLD_SIZE", "2"}}, 1, 1, "WORLD_SIZE"},
      {{{"WORLD_SIZE", "2"}, {"NODE_RANK", "1"}}, 4, 2, ""},  // of nodes, as Lightning's guide has it
      {{{"WORLD_SIZE", "8"}, {"NODE_RANK", "1"}}, 4, 2, ""},
      {{{"WORLD_SIZE", "3"}, {"NODE_RANK", "1"}}, 4, 2, "WORLD_SIZE"},
      {{{"NODE_RANK", "1"}}, 4, 1, "NODE_RANK"},
      {{{"GROUP_RANK", "1"}}, 1, 1, "GROUP_RANK"},
      {{{"LOCAL_RANK", "0"}}, 1, 1, ""},
      {{{"LOCAL_RANK", "1"}}, 1, 1, "LOCAL_RANK"},
      {{{"LOCAL_RANK", "1"}, {"MASTER_PORT", "500"}}, 2, 1, ""},
      {{{"LOCAL_RANK", "1"}}, 2, 1, "MASTER_PORT"},
  };
  for (const auto& row : rows) {
    const ScopedVariables scope(row.variables);
    const auto error =
        config_error([&] { LightningEnvironment().validate_settings(row.devices, row.nodes); });
    EXPECT_THAT(error, row.named.empty() ? HasSubstr("no ConfigError") : HasSubstr("variable " + row.named));
  }
}

TEST(LightningEnvironment, NamesTheLocalRankThatNobodyMeant) {
  const ScopedVariables scope(Variables{{"LOCAL_RANK", "0"}});
  const auto error = config_error([] { LightningEnvironment().validate_settings(2, 1); });
  EXPECT_THAT(error, AllOf(HasSubstr("MASTER_PORT"), HasSubstr("unset LOCAL_RANK")));
  const ScopedVariables whole(Variables{{"LOCAL_RANK", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_THAT(config_error([] { LightningEnvironment().validate_settings(2, 1); }),
              AllOf(HasSubstr("WORLD_SIZE"), HasSubstr("unset LOCAL_RANK"), Not(HasSubstr("set RANK"))));
}

TEST(EnvEnvironment, KnowsWhichRanksShareAMachine) {
  struct Row {
    Variables variables;
    int local_rank, node_rank;
    std::optional<int> local_world_size;
  };
  const Variables place = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "29500"}};
  const Row rows[] = {
      {{{"MASTER_ADDR", "localhost"}}, 3, 0, 4},
      {{{"MASTER_ADDR", "::1"}}, 3, 0, 4},
      {{{"MASTER_ADDR", "head"}}, 0, 3, std::nullopt},
      {{{"MASTER_ADDR", "head"}, {"NODE_RANK", "1"}, {"LOCAL_RANK", "1"}}, 1, 1, std::nullopt},
      {{{"MASTER_ADDR", "head"}, {"LOCAL_RANK", "3"}}, 3, 0, std::nullopt},
      {{{"MASTER_ADDR", "head"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}, 1, 1, 2},
  };
  for (const auto& row : rows) {
    auto variables = row.variables;
    variables.insert(place.begin(), place.end());
    const ScopedVariables scope(variables);
    const EnvEnvironment environment;
    EXPECT_EQ(environment.local_rank(), row.local_rank);
    EXPECT_EQ(environment.node_rank(), row.node_rank);
    EXPECT_EQ(environment.local_world_size(), row.local_world_size);
  }
}

TEST(EnvEnvironment, IsNotDetectedInRanksOfOurOwnNorInAWorldOfOne) {
  const auto detects = [](const Variables& variables) {
    const ScopedVariables scope(variables);
    return EnvEnvironment::detect();
  };
  EXPECT_TRUE(detects(Variables{{"RANK", "0"}}));
  EXPECT_TRUE(detects({{"RANK", "1"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(detects({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(detects({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_LAUNCHED", "fork"}}));
  EXPECT_FALSE(detects({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_LAUNCHED", "reexec"}}));
  EXPECT_FALSE(detects(Variables{{"WORLD_SIZE", "2"}}));
}

TEST(LightningEnvironment, TeardownRemovesTheWorldSize) {
  const ScopedVariables scope(Variables{{"WORLD_SIZE", "9"}});
  LightningEnvironment().teardown();
  EXPECT_FALSE(env::get("WORLD_SIZE"));
}

TEST(LightningEnvironment, TeardownLeavesTheOnlyRankThatAUserHasNamed) {
  const ScopedVariables scope(Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  LightningEnvironment().teardown();
  EXPECT_EQ(env::get("WORLD_SIZE"), "1");
  EXPECT_NO_THROW(detect_environment());
}

}  // namespace
}  // namespace lockstep
