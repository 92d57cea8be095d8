// The contract suite over every kind of the table.
#include "cluster/cluster_environment_contract.h"

#include <algorithm>

namespace lockstep::testing {
namespace {

const std::vector<EnvironmentCase>& cases() {
  static const std::vector<EnvironmentCase> all = {
      {.kind = "torchelastic",
       .variables = {{"TORCHELASTIC_RUN_ID", "job"},
                     {"RANK", "3"},
                     {"WORLD_SIZE", "4"},
                     {"LOCAL_RANK", "1"},
                     {"GROUP_RANK", "1"},
                     {"MASTER_ADDR", "head"},
                     {"MASTER_PORT", "29500"}},
       .integers = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_PORT"},
       .external = true,
       .address = "head",
       .port = 29500,
       .world_size = 4,
       .global_rank = 3,
       .local_rank = 1,
       .node_rank = 1,
       .num_devices = 2,
       .num_nodes = 2},
      {.kind = "lightning",
       .variables =
           {{"MASTER_ADDR", "1.2.3.4"}, {"MASTER_PORT", "500"}, {"LOCAL_RANK", "2"}, {"NODE_RANK", "3"}},
       .integers = {"MASTER_PORT", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"},
       .external = true,
       .address = "1.2.3.4",
       .port = 500,
       .local_rank = 2,
       .node_rank = 3,
       .told_from_outside = false},
  };
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, ClusterEnvironmentContract, ::testing::ValuesIn(cases()),
                         [](const auto& tried) { return tried.param.kind; });

TEST(ClusterEnvironmentTable, EveryKindIsInTheContractSuite) {
  for (const auto& kind : environment_kinds()) {
    EXPECT_TRUE(std::ranges::any_of(cases(), [&](const auto& tried) { return tried.kind == kind.name; }))
        << kind.name << " has no line in the contract suite";
  }
}

TEST(ClusterEnvironmentTable, LastKindIsAlwaysDetected) {
  const ScopedVariables scope({});
  EXPECT_TRUE(environment_kinds().back().detect());
  EXPECT_EQ(detect_environment()->name(), environment_kinds().back().name);
}

}  // namespace
}  // namespace lockstep::testing
