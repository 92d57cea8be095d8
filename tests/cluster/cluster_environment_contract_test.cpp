// The contract suite over every kind of the table.
#include "cluster/cluster_environment_contract.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include <lockstep/cluster/detect.h>
#include <lockstep/cluster/environment.h>

#include "support/temporary_folder.h"

namespace lockstep::testing {
namespace {

// What srun sets in the last task of `srun -N2 --ntasks-per-node=2` in a job with more nodes.
Variables slurm_task() {
  return {{"SLURM_JOB_ID", "987017"},   {"SLURM_JOB_NAME", "train"},      {"SLURM_STEP_ID", "0"},
          {"SLURM_NTASKS", "4"},        {"SLURM_NTASKS_PER_NODE", "2"},   {"SLURM_NNODES", "2"},
          {"SLURM_PROCID", "3"},        {"SLURM_LOCALID", "1"},           {"SLURM_NODEID", "1"},
          {"SLURM_NODELIST", "n[1-4]"}, {"SLURM_STEP_NODELIST", "n[3-4]"}};
}

// Two ranks on another host and two on this one, after a line for the launch node.
std::string rank_file() {
  static const test::TemporaryFolder folder;
  char own[256] = {};
  ::gethostname(own, sizeof(own) - 1);
  std::ofstream(folder / "ranks") << "launch\n10.10.10.1\n10.10.10.1\n" << own << "\n" << own << "\n";
  return folder / "ranks";
}

const std::vector<EnvironmentCase>& cases() {
  static const std::vector<EnvironmentCase> all = {
      {.kind = "torchelastic",
       .variables = {{"TORCHELASTIC_RUN_ID", "job"},
                     {"RANK", "3"},
                     {"WORLD_SIZE", "4"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"GROUP_RANK", "1"},
                     {"MASTER_ADDR", "head"},
                     {"MASTER_PORT", "29500"}},
       .integers = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT"},
       .chosen_by = "TORCHELASTIC_RUN_ID",
       .external = true,
       .address = "head",
       .port = 29500,
       .world_size = 4,
       .global_rank = 3,
       .local_rank = 1,
       .node_rank = 1,
       .local_world_size = 2,
       .num_devices = 2,
       .num_nodes = 2},
      {.kind = "slurm",
       .variables = slurm_task(),
       .integers = {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS_PER_NODE",
                    "SLURM_NNODES", "SLURM_JOB_ID", "MASTER_PORT"},
       .chosen_by = "SLURM_NTASKS",
       .external = true,
       .address = "n3",
       .port = 15'000 + 7'017,
       .world_size = 4,
       .global_rank = 3,
       .local_rank = 1,
       .node_rank = 1,
       .local_world_size = 2,
       .num_devices = 2,
       .num_nodes = 2},
      {.kind = "lsf",
       .variables = {{"LSB_JOBID", "1234567"},
                     {"LSB_DJOB_RANKFILE", rank_file()},
                     {"JSM_NAMESPACE_SIZE", "4"},
                     {"JSM_NAMESPACE_RANK", "3"},
                     {"JSM_NAMESPACE_LOCAL_RANK", "1"}},
       .integers = {"LSB_JOBID", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK",
                    "MASTER_PORT"},
       .chosen_by = "JSM_NAMESPACE_SIZE",
       .external = true,
       .address = "10.10.10.1",
       .port = 10'567,
       .world_size = 4,
       .global_rank = 3,
       .local_rank = 1,
       .node_rank = 1,
       .local_world_size = 2,
       .num_devices = 2,
       .num_nodes = 2},
      {.kind = "mpi",
       .variables = {{"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                     {"MASTER_ADDR", "head"}},
       .integers = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_RANK", "MASTER_PORT"},
       .chosen_by = "OMPI_COMM_WORLD_SIZE",
       .external = true,
       .address = "head",
       .port = 12'910,
       .world_size = 4,
       .global_rank = 3,
       .local_rank = 1,
       .node_rank = 1,
       .local_world_size = 2,
       .num_devices = 2,
       .num_nodes = 2},
      {.kind = "kubeflow",
       .variables =
           {{"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}, {"WORLD_SIZE", "4"}, {"RANK", "3"}},
       .integers = {"MASTER_PORT", "WORLD_SIZE", "RANK"},
       .external = true,
       .detected = false,
       .address = "job-master-0",
       .port = 23'456,
       .world_size = 4,
       .global_rank = 3,
       .local_rank = 0,
       .node_rank = 3,
       .local_world_size = 1,
       .num_devices = 1,
       .num_nodes = 4},
      {.kind = "xla",
       .variables = {{"TPU_WORKER_HOSTNAMES", "10.0.0.1,10.0.0.2"},
                     {"TPU_WORKER_ID", "1"},
                     {"PJRT_LOCAL_PROCESS_COUNT", "4"},
                     {"PJRT_LOCAL_PROCESS_RANK", "2"}},
       .integers = {"TPU_WORKER_ID", "PJRT_LOCAL_PROCESS_COUNT", "PJRT_LOCAL_PROCESS_RANK", "MASTER_PORT"},
       .external = true,
       .detected = false,
       .address = "10.0.0.1",
       .port = 12'355,
       .world_size = 8,
       .global_rank = 6,
       .local_rank = 2,
       .node_rank = 1,
       .local_world_size = 4,
       .num_devices = 4,
       .num_nodes = 2},
      {.kind = "env",
       .variables = {{"RANK", "3"},
                     {"WORLD_SIZE", "4"},
                     {"LOCAL_RANK", "1"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"NODE_RANK", "1"},
                     {"MASTER_ADDR", "head"},
                     {"MASTER_PORT", "29500"}},
       .integers = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK",
                    "MASTER_PORT"},
       .chosen_by = "RANK",
       .external = true,
       .address = "head",
       .port = 29'500,
       .world_size = 4,
       .global_rank = 3,
       .local_rank = 1,
       .node_rank = 1,
       .local_world_size = 2,
       .num_devices = 2,
       .num_nodes = 2},
      {.kind = "lightning",
       .variables =
           {{"MASTER_ADDR", "1.2.3.4"}, {"MASTER_PORT", "500"}, {"LOCAL_RANK", "2"}, {"NODE_RANK", "3"}},
       .integers = {"MASTER_PORT", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE"},
       .external = true,
       .address = "1.2.3.4",
       .port = 500,
       .local_rank = 2,
       .node_rank = 3,
       .told_from_outside = false,
       .num_devices = 3,
       .num_nodes = 4},
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

TEST(ClusterEnvironmentTable, NamesAreFoundInAnyCaseOthersRefused) {
  const ScopedVariables scope({});
  EXPECT_EQ(make_environment("Lightning")->name(), "lightning");
  for (const auto& kind : environment_kinds()) {
    EXPECT_EQ(std::ranges::count(environment_kinds(), kind.name, &EnvironmentKind::name), 1);
  }
  try {
    make_environment("PBS");
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("\"PBS\""), ::testing::HasSubstr("SLURM"),
                                               ::testing::HasSubstr("Kubeflow")));
  }
}

TEST(ClusterEnvironmentTable, EarlierKindsGoBeforeLaterOnes) {
  auto variables = slurm_task();
  variables.merge(Variables{{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}});
  EXPECT_EQ((ScopedVariables(variables), detect_environment()->name()), "slurm");
  variables.merge(
      Variables{{"TORCHELASTIC_RUN_ID", "job"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}});
  EXPECT_EQ((ScopedVariables(variables), detect_environment()->name()), "torchelastic");
}

// Somebody's own: a class of a few lines, known to nobody.
struct Own final : ExternalEnvironment {
  Own()
      : ExternalEnvironment("own", "a friend", {.world_size = 3, .main_address = "there", .main_port = 7}) {}
};

TEST(EnvironmentChoice, IsDetectedByDefault) {
  const ScopedVariables scope(slurm_task());
  EXPECT_TRUE(EnvironmentChoice().is_detected());
  EXPECT_TRUE(EnvironmentChoice("auto").is_detected());
  EXPECT_EQ(EnvironmentChoice().environment()->name(), "slurm");
}

TEST(EnvironmentChoice, TakesLightningsNamesAndEnvironments) {
  const ScopedVariables scope(slurm_task());
  EXPECT_EQ(EnvironmentChoice("Lightning").environment()->name(), "lightning");
  EXPECT_EQ(EnvironmentChoice("slurm").name(), "SLURM");
  const auto own = std::make_shared<Own>();
  EXPECT_EQ(EnvironmentChoice(own).environment(), own);
  EXPECT_EQ(EnvironmentChoice(own).name(), "own");
}

// A saved configuration says `own` for what code has, which is none by itself.
TEST(EnvironmentChoice, HasAWordForOnesOwn) {
  struct Cluster final : ExternalEnvironment {
    Cluster()
        : ExternalEnvironment("ours", "a friend",
                              {.world_size = 1, .main_address = "there", .main_port = 7}) {}
  };
  const auto word = OptionType<EnvironmentChoice>::print(EnvironmentChoice(std::make_shared<Cluster>()));
  EXPECT_EQ(word, "own");
  const auto read = OptionType<EnvironmentChoice>::parse(word);
  ASSERT_TRUE(read);
  EXPECT_EQ(OptionType<EnvironmentChoice>::print(*read), "own");
  EXPECT_THROW(read->environment(), ConfigError);
}

TEST(EnvironmentChoice, RefusesOtherNames) {
  for (const auto& refuse : std::vector<std::function<void()>>{
           [] { EnvironmentChoice("PBS"); }, [] { EnvironmentChoice(std::shared_ptr<Own>()); }})
    EXPECT_THROW(refuse(), ConfigError);
  EXPECT_FALSE(OptionType<EnvironmentChoice>::parse("PBS"));
  EXPECT_THAT(OptionType<EnvironmentChoice>::parse("PBS").error(), ::testing::HasSubstr("Kubeflow"));
  EXPECT_EQ(OptionType<EnvironmentChoice>::print(*OptionType<EnvironmentChoice>::parse("mpi")), "MPI");
}

TEST(ClusterEnvironmentTable, LastKindIsAlwaysDetected) {
  const ScopedVariables scope({});
  EXPECT_TRUE(environment_kinds().back().detect());
  EXPECT_EQ(detect_environment()->name(), environment_kinds().back().name);
}

}  // namespace
}  // namespace lockstep::testing
