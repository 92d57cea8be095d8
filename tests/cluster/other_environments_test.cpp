// What is particular to LSF, MPI and Kubeflow; what all environments share is in the contract suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/cluster/launcher_environments.h>
#include <lockstep/cluster/torch_environments.h>

#include <fstream>

#include "cluster/scoped_variables.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using test::expect_error;
using testing::ScopedVariables;
using testing::Variables;

TEST(LsfEnvironment, IsDetectedByAllFourVariables) {
  const Variables all = {{"LSB_JOBID", "1"},
                         {"LSB_DJOB_RANKFILE", "ranks"},
                         {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                         {"JSM_NAMESPACE_SIZE", "1"}};
  for (const auto& [name, value] : all) {
    auto variables = all;
    variables.erase(name);
    const ScopedVariables scope(variables);
    EXPECT_FALSE(LsfEnvironment::detect()) << name;
  }
  const ScopedVariables scope(all);
  EXPECT_TRUE(LsfEnvironment::detect());
}

TEST(LsfEnvironment, RefusesRankFilesWithoutAComputeHost) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "empty");
  std::ofstream(folder / "launch") << "launch\n";
  std::ofstream(folder / "others") << "launch\nelsewhere\n";
  const auto refused = [](const std::string& file, const std::vector<std::string>& words) {
    const ScopedVariables scope({{"LSB_JOBID", "1"},
                                 {"LSB_DJOB_RANKFILE", file},
                                 {"JSM_NAMESPACE_LOCAL_RANK", "0"},
                                 {"JSM_NAMESPACE_RANK", "0"},
                                 {"JSM_NAMESPACE_SIZE", "1"}});
    expect_error<ConfigError>([] { LsfEnvironment(); }, words);
  };
  refused("", {"LSB_DJOB_RANKFILE", "names no file"});
  refused(folder / "absent", {"LSB_DJOB_RANKFILE", folder / "absent", "cannot be read"});
  refused(folder / "empty", {"LSB_DJOB_RANKFILE", "no compute host"});
  refused(folder / "launch", {"LSB_DJOB_RANKFILE", "no compute host"});
  refused(folder / "others", {"does not name this host", "elsewhere"});
}

TEST(MpiEnvironment, ReadsHydrasVariablesToo) {
  const ScopedVariables scope(
      {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"}});
  EXPECT_EQ(detect_environment()->name(), "mpi");
  const MpiEnvironment environment;
  EXPECT_EQ(environment.global_rank(), 1);
  EXPECT_EQ(environment.local_rank(), 1);
  EXPECT_EQ(environment.local_world_size(), 2);
  EXPECT_EQ(environment.main_address(), "127.0.0.1");
}

TEST(MpiEnvironment, ReadsTheRanksOfTheNodeOfEachProcessManager) {
  const auto expect_place = [](const std::string& size, const std::string& rank,
                               const std::string& local_size, const std::string& local_rank) {
    const ScopedVariables scope(
        {{size, "4"}, {rank, "3"}, {local_size, "2"}, {local_rank, "1"}, {"MASTER_ADDR", "a"}});
    EXPECT_EQ(detect_environment()->name(), "mpi") << local_size;
    const MpiEnvironment environment;
    EXPECT_EQ(environment.world_size(), 4) << local_size;
    EXPECT_EQ(environment.global_rank(), 3) << local_size;
    EXPECT_EQ(environment.local_rank(), 1) << local_size;
    EXPECT_EQ(environment.node_rank(), 1) << local_size;
    EXPECT_EQ(environment.local_world_size(), 2) << local_size;
  };
  expect_place("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID");
  expect_place("PMI_SIZE", "PMI_RANK", "PMI_LOCAL_SIZE", "PMI_LOCAL_RANK");
  expect_place("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
               "MV2_COMM_WORLD_LOCAL_RANK");
}

TEST(MpiEnvironment, OneProcessIsNoJob) {
  const ScopedVariables scope({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}});
  EXPECT_EQ(detect_environment()->name(), "lightning");
}

TEST(MpiEnvironment, AsksForTheAddressWhereRanksAreOnSeveralNodes) {
  const ScopedVariables scope({{"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  expect_error<ConfigError>([] { MpiEnvironment(); }, {"MASTER_ADDR", "unset", "mpirun -x MASTER_ADDR=HOST"});
}

TEST(MpiEnvironment, AsksOpenMpiForTheRanksOfTheNode) {
  Variables variables = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"MASTER_ADDR", "a"}};
  expect_error<ConfigError>(
      [&] {
        const ScopedVariables scope(variables);
        MpiEnvironment();
      },
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "unset"});
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  expect_error<ConfigError>(
      [&] {
        const ScopedVariables scope(variables);
        MpiEnvironment();
      },
      {"OMPI_COMM_WORLD_LOCAL_RANK", "unset"});
}

TEST(MpiEnvironment, JobsHavePortsOfTheirOwn) {
  const auto port = [](const std::string& job) {
    const ScopedVariables scope({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}, {"PMIX_NAMESPACE", job}});
    return MpiEnvironment().main_port();
  };
  EXPECT_EQ(port("558891009"), port("558891009"));
  EXPECT_NE(port("558891009"), port("558956545"));
  EXPECT_GE(port("558891009"), 15'000);
  EXPECT_LT(port("558891009"), 25'000);
}

TEST(MpiEnvironment, RefusesRanksBeyondTheWorld) {
  const ScopedVariables scope({{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}});
  expect_error<ConfigError>([] { MpiEnvironment(); }, {"PMI_RANK", "\"2\"", "PMI_SIZE - 1", "mpirun"});
}

TEST(KubeflowEnvironment, NamesTheMissingVariable) {
  for (const std::string name : {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}) {
    Variables variables = {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}, {"WORLD_SIZE", "1"}, {"RANK", "0"}};
    variables.erase(name);
    const ScopedVariables scope(variables);
    expect_error<ConfigError>([] { KubeflowEnvironment(); }, {name, "unset", "PyTorchJob"});
  }
}

TEST(XlaEnvironment, IsOneProcessWithoutVariables) {
  const ScopedVariables scope({});
  const XlaEnvironment environment;
  EXPECT_EQ(environment.world_size(), 1);
  EXPECT_EQ(environment.main_address(), "127.0.0.1");
  EXPECT_EQ(environment.main_port(), 12'355);
}

}  // namespace
}  // namespace lockstep
