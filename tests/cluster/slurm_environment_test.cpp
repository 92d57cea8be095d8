// What is particular to SLURM; what all environments share is in the contract suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>
#include <lockstep/cluster/launcher_environments.h>

#include "cluster/scoped_variables.h"
#include "cluster/variables.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScopedVariables;
using testing::Variables;

// A task of `srun -N1 --ntasks-per-node=2` with some variables changed, or removed by "".
Variables task(const Variables& changes = {}) {
  Variables variables = {{"SLURM_JOB_ID", "42"},         {"SLURM_JOB_NAME", "train"}, {"SLURM_STEP_ID", "0"},
                         {"SLURM_NTASKS", "2"},          {"SLURM_NNODES", "1"},       {"SLURM_PROCID", "1"},
                         {"SLURM_NTASKS_PER_NODE", "2"}, {"SLURM_LOCALID", "1"},      {"SLURM_NODEID", "0"},
                         {"SLURM_NODELIST", "n1"}};
  for (const auto& [name, value] : changes) {
    if (value.empty())
      variables.erase(name);
    else
      variables[name] = value;
  }
  return variables;
}

std::string detected(const Variables& changes) {
  const ScopedVariables scope(task(changes));
  return detect_environment()->name();
}

int port(const Variables& changes) {
  const ScopedVariables scope(task(changes));
  return SlurmEnvironment().main_port();
}

std::string address(const Variables& changes) {
  const ScopedVariables scope(task(changes));
  return SlurmEnvironment().main_address();
}

void expect_refused(const Variables& changes, const std::vector<std::string>& words) {
  const ScopedVariables scope(task(changes));
  expect_error<ConfigError>([] { SlurmEnvironment(); }, words);
}

TEST(SlurmNodeList, NamesTheFirstHostAsTheSchedulersListsDo) {
  const std::vector<std::pair<std::string, std::string>> vectors = {{"host[22]", "host22"},
                                                                    {"host[1,5-9]", "host1"},
                                                                    {"host[5-9,1]", "host5"},
                                                                    {"alpha,beta,gamma", "alpha"},
                                                                    {"alpha, host[5-9], gamma", "alpha"},
                                                                    {"alpha[3,1], beta", "alpha3"},
                                                                    {"1.2.3.[100-110]", "1.2.3.100"},
                                                                    {"1.2.3.[089, 100-110]", "1.2.3.089"},
                                                                    {"alpha beta gamma", "alpha"},
                                                                    {"gpu-a-7,gpu-b", "gpu-a-7"}};
  for (const auto& [list, first] : vectors) EXPECT_EQ(address({{"SLURM_NODELIST", list}}), first) << list;
}

TEST(SlurmNodeList, ExpandsRangesWithTheirZerosAndSeveralBrackets) {
  EXPECT_THAT(cluster::expand_node_list("LIST", "n[08-10,3],login"),
              ElementsAre("n08", "n09", "n10", "n3", "login"));
  EXPECT_THAT(cluster::expand_node_list("LIST", "r[1-2]n[7-8]-ib"),
              ElementsAre("r1n7-ib", "r1n8-ib", "r2n7-ib", "r2n8-ib"));
}

TEST(SlurmEnvironment, RefusesMoreTasksThanAnyJobHas) {
  expect_refused({{"SLURM_NTASKS", "2147483647"}}, {"SLURM_NTASKS", "1000000"});
}

TEST(SlurmNodeList, EndsAtTheLargestNumber) {
  EXPECT_THAT(cluster::expand_node_list("LIST", "n[18446744073709551614-18446744073709551615]"),
              ElementsAre("n18446744073709551614", "n18446744073709551615"));
}

// A short list would take gigabytes where each of many hosts has a long name.
TEST(SlurmNodeList, RefusesNamesThatNoHostCanHave) {
  const std::string zeros(100'000, '0'), letters(100'000, 'n');
  for (const auto& list : {"n[" + zeros + "1-900000]", letters + "[1-900000]", "n[1-900000]" + letters})
    expect_error<ConfigError>([&] { cluster::expand_node_list("SLURM_NODELIST", list); }, {"SLURM_NODELIST"});
}

TEST(SlurmNodeList, RefusesWhatIsNone) {
  for (const std::string list : {"", " , ", "n[1", "n1]", "n[]", "n[a]", "n[3-1]", "n[1-]", "n[-2]",
                                 "n[1-2-3]", "n[[1]]", "n[0-99999999999]", "n[1-5000]m[1-5000]"})
    expect_error<ConfigError>([&] { cluster::expand_node_list("SLURM_NODELIST", list); },
                              {"SLURM_NODELIST", "\"" + list + "\"", "node[3-5,08]"});
}

TEST(SlurmEnvironment, IsWhatSrunStarted) {
  EXPECT_EQ(detected({}), "slurm");
  EXPECT_EQ(detected({{"SLURM_NTASKS", ""}}), "lightning");
  // srun from the shell of salloc: the job is called "interactive", its tasks are tasks all the same.
  EXPECT_EQ(detected({{"SLURM_JOB_NAME", "interactive"}}), "slurm");
}

TEST(SlurmEnvironment, IsNotAShellNorABatchScript) {
  EXPECT_EQ(detected({{"SLURM_JOB_NAME", "bash"}, {"SLURM_PTY_PORT", "4711"}}), "lightning");
  EXPECT_EQ(detected({{"SLURM_JOB_NAME", "bash"}, {"SLURM_NTASKS", "1"}}), "lightning");
  EXPECT_EQ(detected({{"SLURM_JOB_NAME", "bash"}}), "slurm");  // srun bash -c ./program
  // srun --pty zsh, and srun --pty -n 4 ./train from the shell of salloc, which names the job.
  for (const char* name : {"interactive", "zsh", "sh"}) {
    const Variables several{{"SLURM_JOB_NAME", name}, {"SLURM_PTY_PORT", "4711"}};
    EXPECT_EQ(detected(several), "slurm") << name;
    auto alone = several;
    alone.insert({{"SLURM_NTASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
    EXPECT_EQ(detected(alone), "lightning") << name;
  }
  EXPECT_EQ(detected({{"SLURM_STEP_ID", "4294967290"}}), "lightning");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(detected({{"SLURM_STEP_ID", ""}}), "lightning");                        // sbatch
  EXPECT_EQ(detected({{"SLURM_STEP_ID", ""}, {"SLURM_PROCID", ""}}), "lightning");  // salloc
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("srun did not start this process: it is none of them"));
}

TEST(SlurmEnvironment, IsNotWhatMpirunStartedInsideAJob) {
  EXPECT_EQ(detected({{"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}),
            "mpi");
  EXPECT_EQ(detected({{"MV2_COMM_WORLD_SIZE", "2"},
                      {"MV2_COMM_WORLD_RANK", "1"},
                      {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"MV2_COMM_WORLD_LOCAL_RANK", "1"}}),
            "mpi");
}

TEST(SlurmEnvironment, PortComesFromTheJobAndItsStep) {
  EXPECT_EQ(port({{"SLURM_JOB_ID", "42"}}), 15'042);
  EXPECT_EQ(port({{"SLURM_JOB_ID", "1234567"}}), 19'567);
  EXPECT_EQ(port({{"SLURM_JOB_ID", ""}}), 12'910);
  EXPECT_NE(port({{"SLURM_STEP_ID", "1"}}), port({}));
  EXPECT_EQ(port({{"MASTER_PORT", "777"}}), 777);
}

TEST(SlurmEnvironment, AddressIsThatOfTheStepsFirstNode) {
  EXPECT_EQ(address({{"SLURM_STEP_NODELIST", "n[2-3]"}}), "n2");
  EXPECT_EQ(address({{"SLURM_NODELIST", ""}}), "127.0.0.1");
  EXPECT_EQ(address({{"MASTER_ADDR", "head"}}), "head");
}

TEST(SlurmEnvironment, KnowsItsJob) {
  const ScopedVariables scope(task({{"SLURM_ARRAY_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "3"}}));
  EXPECT_EQ(SlurmEnvironment::job_id(), 42);
  EXPECT_EQ(SlurmEnvironment::job_name(), "train");
  const ScopedVariables shell(Variables{{"SLURM_JOB_ID", "42"}, {"SLURM_JOB_NAME", "bash"}});
  EXPECT_EQ(SlurmEnvironment::job_id(), std::nullopt);
  const ScopedVariables none({});
  EXPECT_EQ(SlurmEnvironment::job_id(), std::nullopt);
  EXPECT_EQ(SlurmEnvironment::job_name(), std::nullopt);
}

std::optional<std::string> job_to_requeue(const Variables& changes) {
  const ScopedVariables scope(task(changes));
  return SlurmEnvironment::job_to_requeue();
}

TEST(SlurmEnvironment, NamesItsJobAsScontrolDoes) {
  EXPECT_EQ(job_to_requeue({}), "42");
  EXPECT_EQ(job_to_requeue({{"SLURM_ARRAY_JOB_ID", "40"}, {"SLURM_ARRAY_TASK_ID", "2"}}), "40_2");
  EXPECT_EQ(job_to_requeue({{"SLURM_JOB_ID", ""}}), std::nullopt);
  EXPECT_EQ(job_to_requeue({{"SLURM_JOB_ID", "4227858433"}}), "4227858433")
      << "of a federation's 63rd cluster";
  expect_error<ConfigError>(
      [] {
        (void)job_to_requeue({{"SLURM_ARRAY_JOB_ID", "40"}});
      },
      {"SLURM_ARRAY_TASK_ID", "unset"});
}

bool requeues(const Variables& changes, const SlurmOptions& options = {}) {
  const ScopedVariables scope(task(changes));
  return SlurmEnvironment(options).auto_requeue();
}

TEST(SlurmEnvironment, RequeuesJobsThatNobodyHasInATerminal) {
  EXPECT_TRUE(requeues({}));
  EXPECT_FALSE(requeues({}, {.auto_requeue = false}));
  EXPECT_FALSE(requeues({{"SLURM_JOB_NAME", "interactive"}}));
  EXPECT_FALSE(requeues({{"SLURM_JOB_NAME", "bash"}}));
  EXPECT_FALSE(requeues({{"SLURM_JOB_ID", ""}}));
}

TEST(SlurmEnvironment, TakesAnySignalThatIsFree) {
  const ScopedVariables scope(task());
  EXPECT_EQ(SlurmEnvironment().requeue_signal(), SIGUSR1);
  EXPECT_EQ(SlurmEnvironment({.requeue_signal = SIGHUP}).requeue_signal(), SIGHUP);
  for (const int signal : {0, -1, 65, SIGTERM, SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV})
    expect_error<ConfigError>([&] { SlurmEnvironment({.requeue_signal = signal}); },
                              {"requeue_signal", "SIGUSR1 (10)", "got " + std::to_string(signal)});
}

TEST(SlurmEnvironment, CountsStartsAndSteps) {
  const ScopedVariables scope(task({{"SLURM_RESTART_COUNT", "3"}, {"SLURM_STEP_ID", "2"}}));
  EXPECT_EQ(SlurmEnvironment::restart_count(), 3);
  EXPECT_EQ(SlurmEnvironment::step(), 2);
  const ScopedVariables script(Variables{{"SLURM_JOB_ID", "42"}});
  EXPECT_EQ(SlurmEnvironment::restart_count(), 0);
  EXPECT_EQ(SlurmEnvironment::step(), std::nullopt);
}

// `srun -n 1` and `srun -N 2 -n 4` within a job of four tasks on each of three nodes.
TEST(SlurmEnvironment, AStepMayBeSmallerThanItsJob) {
  const Variables job = {{"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_NNODES", "3"}, {"SLURM_LOCALID", "0"}};
  const auto in_step = [&](const Variables& step) {
    auto changes = job;
    for (const auto& [name, value] : step) changes[name] = value;
    return task(changes);
  };
  const ScopedVariables one(in_step({{"SLURM_NTASKS", "1"},
                                     {"SLURM_PROCID", "0"},
                                     {"SLURM_STEP_NUM_NODES", "1"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "1"}}));
  SlurmEnvironment().validate_settings(1, 1);
  const ScopedVariables four(in_step(
      {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}}));
  EXPECT_EQ(SlurmEnvironment().local_world_size(), 2);
  SlurmEnvironment().validate_settings(2, 2);
}

TEST(SlurmEnvironment, RefusesTasksWithoutTheirNumberOnANode) {
  expect_refused({{"SLURM_NTASKS_PER_NODE", ""}},
                 {"SLURM_NTASKS_PER_NODE", "SLURM_NTASKS is 2", "unset", "--ntasks-per-node, not --ntasks"});
}

TEST(SlurmEnvironment, NamesTheVariableThatIsMissingOrOutOfRange) {
  for (const std::string name : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"}) {
    expect_refused({{name, ""}}, {name, "unset", "srun"});
    expect_refused({{name, "2"}}, {name, "\"2\"", " - 1)"});
  }
  expect_refused({{"SLURM_NTASKS", "0"}}, {"SLURM_NTASKS", "\"0\""});
}

TEST(SlurmEnvironment, NamesTheSettingThatDiffersFromTheJob) {
  const ScopedVariables scope(task());
  const SlurmEnvironment environment;
  expect_error<ConfigError>([&] { environment.validate_settings(4, 1); },
                            {"devices = SLURM_NTASKS_PER_NODE = 2", "devices=4", "--ntasks-per-node=4"});
  expect_error<ConfigError>([&] { environment.validate_settings(2, 3); },
                            {"num_nodes = SLURM_NNODES = 1", "num_nodes=3", "--nodes=3"});
  const ScopedVariables uneven(task({{"SLURM_NTASKS", "3"}, {"SLURM_NNODES", "2"}}));
  expect_error<ConfigError>([&] { SlurmEnvironment().validate_settings(2, 2); },
                            {"devices * num_nodes = SLURM_NTASKS = 3", "=4", "--ntasks=4"});
}

}  // namespace
}  // namespace lockstep
