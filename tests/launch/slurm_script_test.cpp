// The text of files for sbatch; tests/slurm gives them to SLURM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/launch/slurm_script.h>

#include "launch/command.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kDeadline{10};

std::string script(SlurmScriptOptions options) {
  if (options.command.empty()) options.command = {"./train", "fit"};
  return slurm_script(options);
}

void expect_refused(const SlurmScriptOptions& options, const std::string& option, const std::string& value) {
  expect_error<ConfigError>([&] { (void)script(options); }, {option, '"' + value + '"', "expected"});
}

/// What a program gets of `words` when bash runs the script: srun is a stand-in that prints its arguments.
std::string arguments_of(std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  const std::string fake_srun = "srun() { shift; printf '<%s>' \"$@\"; }; export SLURM_ARRAY_TASK_ID=7\n";
  auto text = script({.command = words});
  text.replace(text.find("exec srun"), 9, "srun");
  return launch::run_command({"bash", "-c", fake_srun + text}, kDeadline).output;
}

TEST(SlurmScript, AsksForWhatItWasTold) {
  EXPECT_EQ(script({.job_name = "digits",
                    .nodes = 2,
                    .ntasks_per_node = 4,
                    .gpus_per_node = 4,
                    .cpus_per_task = 8,
                    .mem = "64G",
                    .time = "1-12:00:00",
                    .partition = "gpu",
                    .account = "project",
                    .qos = "long",
                    .constraint = "a100&nvlink",
                    .array = "0-3%2",
                    .logs = "logs",
                    .setup = {"module load gcc"}}),
            "#!/bin/bash\n"
            "#SBATCH --job-name=digits\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --ntasks-per-node=4\n"
            "#SBATCH --gpus-per-node=4\n"
            "#SBATCH --cpus-per-task=8\n"
            "#SBATCH --mem=64G\n"
            "#SBATCH --time=1-12:00:00\n"
            "#SBATCH --signal=USR1@90\n"
            "#SBATCH --requeue\n"
            "#SBATCH --partition=gpu\n"
            "#SBATCH --account=project\n"
            "#SBATCH --qos=long\n"
            "#SBATCH --constraint=a100&nvlink\n"
            "#SBATCH --array=0-3%2\n"
            "#SBATCH --output=logs/%x-%A_%a.out\n"
            "#SBATCH --open-mode=append\n"
            "\n"
            "set -e\n"
            "module load gcc\n"
            "exec srun --kill-on-bad-exit=1 --cpus-per-task=8 ./train fit\n");
}

TEST(SlurmScript, LeavesOutWhatItWasNotTold) {
  const auto text = script({.signal = "none", .requeue = false});
  EXPECT_THAT(text, HasSubstr("#SBATCH --job-name=train\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --ntasks-per-node=1\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --no-requeue\n"));
  for (const char* option : {"signal", "gpus", "time", "array", "partition", "mem"})
    EXPECT_THAT(text, Not(HasSubstr(std::string("--") + option))) << option;
}

TEST(SlurmScript, StartsARankForEachGpu) {
  EXPECT_THAT(script({.gpus_per_node = 8}), HasSubstr("#SBATCH --ntasks-per-node=8\n"));
}

TEST(SlurmScript, GivesTheProgramItsWordsAsTheyAre) {
  EXPECT_EQ(arguments_of({"a b", "it's", "$HOME", "`x`", "*", "", "\"q\"", "back\\slash", "\n"}),
            "<program><a b><it's><$HOME><`x`><*><><\"q\"><back\\slash><\n>");
}

TEST(SlurmScript, PutsInTheVariablesOfSlurmOnly) {
  EXPECT_EQ(arguments_of({"$SLURM_ARRAY_TASK_ID", "run_${SLURM_ARRAY_TASK_ID}/$HOME \"x\" `y` \\"}),
            "<program><7><run_7/$HOME \"x\" `y` \\>");
}

TEST(SlurmScript, TakesTimesAsSbatchDoes) {
  for (const std::string time : {"90", "10:30", "1:00:00", "2-12", "2-12:30", "2-12:30:15", "UNLIMITED"})
    EXPECT_THAT(script({.time = time}), HasSubstr("--time=" + time + "\n"));
}

TEST(SlurmScript, NamesTheOptionThatIsWrong) {
  expect_refused({.nodes = 0}, "--nodes", "0");
  expect_refused({.ntasks_per_node = -1}, "--ntasks-per-node", "-1");
  expect_refused({.gpus_per_node = 0}, "--gpus-per-node", "0");
  expect_refused({.cpus_per_task = 0}, "--cpus-per-task", "0");
  for (const std::string time : {"1h", "1:", "1-", "-5", "1:2:3:4"})
    expect_refused({.time = time}, "--time", time);
  for (const std::string signal : {"USR1", "KILL@90", "USR1@", "B:USR1@90", "@90"})
    expect_refused({.signal = signal}, "--signal", signal);
  for (const std::string array : {"a", "1-", "0-3%", "1,,2"})
    expect_refused({.array = array}, "--array", array);
  expect_refused({.mem = "lots"}, "--mem", "lots");
  expect_refused({.job_name = "a b"}, "--job-name", "a b");
  expect_refused({.partition = "a\nexec rm"}, "--partition", "a\nexec rm");
  expect_refused({.account = "a b"}, "--account", "a b");
  expect_refused({.qos = "a b"}, "--qos", "a b");
  expect_refused({.constraint = "a b"}, "--constraint", "a b");
  expect_refused({.logs = "a\nb"}, "--logs", "a\nb");
  expect_error<ConfigError>([] { (void)slurm_script({}); }, {"PROGRAM", "./train fit"});
}

}  // namespace
}  // namespace lockstep
