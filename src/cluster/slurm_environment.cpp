// The environment of ranks started by the srun of SLURM.
#include <lockstep/cluster/launcher_environments.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <limits>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>

#include "cluster/variables.h"

namespace lockstep {
namespace {

constexpr cluster::Source kSetBy = {"SLURM's srun", "SLURM_NTASKS"};
constexpr int kFirstPort = 15'000;
constexpr int kPorts = 10'000;
constexpr int kPortsBetweenSteps = 7'919;               // a prime, so that few steps of a job share a port
constexpr const char* kInteractiveStep = "4294967290";  // SLURM_INTERACTIVE_STEP of slurm.h

int read_slurm(const char* name, int fallback, int min = 0) {
  return cluster::read_int({.name = name, .set_by = kSetBy, .min = min}, fallback);
}

// Federations use all 32 bits.
std::int64_t read_job(const char* name) {
  constexpr auto kLargest = std::numeric_limits<std::uint32_t>::max();
  return cluster::require_int64({.name = name, .set_by = kSetBy, .max = kLargest});
}

int require_below(const char* name, int limit, std::string_view limit_name) {
  return cluster::require_int({.name = name, .set_by = kSetBy, .max = limit - 1, .max_name = limit_name});
}

// Whether this is the shell of `srun --pty bash`, or of salloc where a site runs it as a step; not of `srun
// bash -c ./program`.
bool is_shell() {
  // salloc calls its own jobs interactive, or by the shell that it is given.
  constexpr std::array kOtherNames{"interactive", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"};
  const auto step = env::get("SLURM_STEP_ID");
  const auto job = env::get("SLURM_JOB_NAME");
  const bool has_terminal = cluster::is_set("SLURM_PTY_PORT");
  const bool has_one_task = env::get("SLURM_NTASKS") == "1";
  if (step == kInteractiveStep) return true;
  if (job == "bash") return !step || has_one_task || has_terminal;
  return has_one_task && has_terminal &&
         std::ranges::any_of(kOtherNames, [&](const char* name) { return job == name; });
}

// "2" or "2(x3)": all nodes of the step have as many. Empty where they have not, and where srun says nothing.
std::optional<int> tasks_per_node_of_step() {
  const auto text = env::get("SLURM_STEP_TASKS_PER_NODE").value_or("");
  const auto times = text.find("(x");
  const auto number = [](const std::string& digits) { return OptionType<int>::parse(digits).value_or(0); };
  const bool is_of_all = times == text.npos ||
                         (text.ends_with(')') && number(text.substr(times + 2, text.size() - times - 3)) > 0);
  const int tasks = number(text.substr(0, times));
  return is_of_all && tasks > 0 ? std::optional(tasks) : std::nullopt;
}

// The number of tasks per node, which decides which ranks share a node; with --ntasks alone SLURM chooses it.
// A step may have fewer than its job, of which SLURM_NTASKS_PER_NODE is.
int read_tasks_per_node(int world_size) {
  if (world_size == 1) return 1;
  if (const auto of_step = tasks_per_node_of_step()) return *of_step;
  if (cluster::is_set("SLURM_NTASKS_PER_NODE")) return read_slurm("SLURM_NTASKS_PER_NODE", 1, 1);
  throw ConfigError("cluster",
                    {.what = "environment variable SLURM_NTASKS_PER_NODE",
                     .expected = "an integer >= 1, as SLURM_NTASKS is " + std::to_string(world_size),
                     .got = "unset",
                     .hint = std::string("use srun or #SBATCH with --ntasks-per-node, not --ntasks") +
                             cluster::or_unset(kSetBy)});
}

std::string first_host() {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"})
    if (const auto list = env::get(name)) return cluster::expand_node_list(name, *list).front();
  return "127.0.0.1";
}

int port_of_step() {
  const auto job = SlurmEnvironment::job_id();
  if (!job) return cluster::kDefaultPort;
  const std::int64_t step = read_slurm("SLURM_STEP_ID", 0);
  return kFirstPort + static_cast<int>((*job + step * kPortsBetweenSteps) % kPorts);
}

int read_num_nodes(int world_size, int per_node) {
  const int of_job = read_slurm("SLURM_NNODES", std::max(1, world_size / per_node), 1);
  return read_slurm("SLURM_STEP_NUM_NODES", of_job, 1);
}

RankPlace read_place() {
  const int world_size =
      cluster::require_int({.name = "SLURM_NTASKS", .set_by = kSetBy, .min = 1, .max = cluster::kMaxRanks});
  const int per_node = read_tasks_per_node(world_size);
  const int num_nodes = read_num_nodes(world_size, per_node);
  return {.world_size = world_size,
          .global_rank = require_below("SLURM_PROCID", world_size, "SLURM_NTASKS - 1"),
          .local_rank = require_below("SLURM_LOCALID", per_node, "SLURM_NTASKS_PER_NODE - 1"),
          .node_rank = require_below("SLURM_NODEID", num_nodes, "SLURM_NNODES - 1"),
          .local_world_size = per_node,
          .main_address = cluster::read_address(kSetBy, first_host()),
          .main_port = cluster::read_port(kSetBy, port_of_step())};
}

struct Setting {
  const char* name;
  int value;
  const char* variable;
  int started;
  const char* flag;
};

void require_same(const Setting& setting) {
  if (setting.value == setting.started) return;
  const std::string name = setting.name, value = std::to_string(setting.value);
  throw ConfigError(
      "cluster",
      {.what = "the settings do not match the tasks that SLURM started",
       .expected = name + " = " + setting.variable + " = " + std::to_string(setting.started),
       .got = name + "=" + value,
       .hint = std::string("submit the job with ") + setting.flag + "=" + value + ", or change " + name});
}

void require_usable(int requeue_signal) {
  constexpr std::array kNeeded{SIGTERM, SIGINT, SIGCHLD, SIGSEGV, SIGBUS,
                               SIGFPE,  SIGILL, SIGABRT, SIGKILL, SIGSTOP};
  const bool exists = requeue_signal > 0 && requeue_signal <= SIGRTMAX;
  if (exists && std::ranges::count(kNeeded, requeue_signal) == 0) return;
  throw ConfigError("cluster", {.what = "SlurmOptions::requeue_signal",
                                .expected = "a signal that is not needed otherwise, such as SIGUSR1 (" +
                                            std::to_string(SIGUSR1) + ") or SIGUSR2",
                                .got = std::to_string(requeue_signal)});
}

}  // namespace

bool SlurmEnvironment::detect() {
  if (!cluster::is_set("SLURM_NTASKS") || is_shell() || cluster::started_by_mpirun()) return false;
  const bool is_task = cluster::is_set("SLURM_STEP_ID") && cluster::is_set("SLURM_PROCID");
  if (!is_task && read_slurm("SLURM_NTASKS", 1) > 1)
    warn_once("cluster.srun",
              "this job has " + *env::get("SLURM_NTASKS") +
                  " tasks (SLURM_NTASKS), but srun did not start this process: it is none of them; "
                  "start the program with srun");
  return is_task;
}

SlurmEnvironment::SlurmEnvironment(const SlurmOptions& options)
    : ExternalEnvironment("slurm", std::string(kSetBy.name), read_place()),
      options_(options),
      num_nodes_(read_num_nodes(world_size(), local_world_size().value())) {
  require_usable(options.requeue_signal);
}

void SlurmEnvironment::validate_settings(int num_devices, int num_nodes) const {
  require_same(
      {"devices", num_devices, "SLURM_NTASKS_PER_NODE", local_world_size().value(), "--ntasks-per-node"});
  require_same({"num_nodes", num_nodes, "SLURM_NNODES", num_nodes_, "--nodes"});
  require_same({"devices * num_nodes", num_devices * num_nodes, "SLURM_NTASKS", world_size(), "--ntasks"});
}

std::optional<std::int64_t> SlurmEnvironment::job_id() {
  if (!cluster::is_set("SLURM_JOB_ID") || is_shell()) return std::nullopt;
  return read_job("SLURM_JOB_ID");
}

std::optional<std::string> SlurmEnvironment::job_name() { return env::get("SLURM_JOB_NAME"); }

std::optional<std::string> SlurmEnvironment::job_to_requeue() {
  const auto job = job_id();
  if (!job) return std::nullopt;
  if (!cluster::is_set("SLURM_ARRAY_JOB_ID")) return std::to_string(*job);
  const auto part = [](const char* name) { return std::to_string(read_job(name)); };
  return part("SLURM_ARRAY_JOB_ID") + "_" + part("SLURM_ARRAY_TASK_ID");
}

int SlurmEnvironment::restart_count() { return read_slurm("SLURM_RESTART_COUNT", 0); }

std::optional<int> SlurmEnvironment::step() {
  if (!cluster::is_set("SLURM_STEP_ID") || is_shell()) return std::nullopt;
  return read_slurm("SLURM_STEP_ID", 0);
}

bool SlurmEnvironment::auto_requeue() const {
  const auto name = job_name();
  return options_.auto_requeue && job_id() && name != "bash" && name != "interactive";
}

}  // namespace lockstep
