#include "launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include <lockstep/base/env.h>
#include <lockstep/launch/binding.h>

namespace lockstep::launch {
namespace {

std::map<std::string, std::string> place_in_job(const LaunchOptions& options, const LaunchContext& context,
                                                int rank, int local_rank) {
  const int world_size = context.world_size != 0 ? context.world_size : options.nprocs * options.num_nodes;
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"LOCAL_WORLD_SIZE", std::to_string(options.nprocs)},
          {"NODE_RANK", std::to_string(options.node_rank)},
          {"GROUP_RANK", std::to_string(options.node_rank)},
          {"GROUP_WORLD_SIZE", std::to_string(options.num_nodes)},
          {"MASTER_ADDR", options.main_address},
          {"MASTER_PORT", std::to_string(context.port)}};
}

void hand_down(RankPlan& plan, const char* variable, int fd) {
  if (fd < 0) {
    plan.unset.emplace_back(variable);
    return;
  }
  plan.variables[variable] = std::to_string(fd);
  plan.inherited_fds.push_back(fd);
}

RankPlan plan_rank(const LaunchOptions& options, const LaunchContext& context, int local_rank) {
  const int first = context.first_rank >= 0 ? context.first_rank : options.node_rank * options.nprocs;
  const int rank = first + local_rank;
  RankPlan plan{.rank = rank,
                .local_rank = local_rank,
                .name = "rank-" + std::to_string(rank),
                .variables = place_in_job(options, context, rank, local_rank),
                .unset = {},
                .inherited_fds = {}};
  plan.variables["LOCKSTEP_LAUNCHED"] = context.launched;
  if (!env::get("OMP_NUM_THREADS")) {
    plan.variables["OMP_NUM_THREADS"] = std::to_string(share_of_processors(options.nprocs));
  }
  hand_down(plan, "LOCKSTEP_LISTEN_FD", rank == 0 ? context.listen_fd : -1);
  hand_down(plan, "LOCKSTEP_STATUS_FD", context.status_fd);
  return plan;
}

}  // namespace

std::vector<RankPlan> plan_ranks(const LaunchOptions& options, const LaunchContext& context) {
  std::vector<RankPlan> plans;
  for (int local_rank = 0; local_rank < options.nprocs; ++local_rank) {
    plans.push_back(plan_rank(options, context, local_rank));
  }
  return plans;
}

int share_of_processors(int ranks) { return std::max(1, usable_processors() / ranks); }

namespace {

std::vector<cpu_set_t> mask_of(const std::vector<int>& processors) {
  if (processors.empty()) return {};
  const auto sets = static_cast<std::size_t>(*std::ranges::max_element(processors)) / CPU_SETSIZE + 1;
  std::vector<cpu_set_t> mask(sets);
  for (const int processor : processors)
    CPU_SET_S(static_cast<std::size_t>(processor), sets * sizeof(cpu_set_t), mask.data());
  return mask;
}

}  // namespace

ExecImage::ExecImage(const RankPlan& plan, const std::filesystem::path& program,
                     std::vector<std::string> arguments)
    : program_(program.string()),
      arguments_(std::move(arguments)),
      inherited_fds_(plan.inherited_fds),
      processors_(mask_of(plan.processors)) {
  for (auto& argument : arguments_) argv_.push_back(argument.data());
  argv_.push_back(nullptr);
  auto merged = env::with_prefix("");
  for (const auto& name : plan.unset) merged.erase(name);
  for (const auto& [name, value] : plan.variables) merged[name] = value;
  for (const auto& [name, value] : merged) variables_.push_back(name + "=" + value);
  for (auto& variable : variables_) envp_.push_back(variable.data());
  envp_.push_back(nullptr);
}

void ExecImage::execute() const {
  for (const int fd : inherited_fds_) ::fcntl(fd, F_SETFD, 0);
  if (!processors_.empty() &&
      ::sched_setaffinity(0, processors_.size() * sizeof(cpu_set_t), processors_.data()) != 0)
    return;
  ::execve(program_.c_str(), argv_.data(), envp_.data());
}

std::vector<ExecImage> make_images(std::span<const RankPlan> plans, const std::filesystem::path& program,
                                   const std::vector<std::string>& arguments) {
  std::vector<ExecImage> images;
  images.reserve(plans.size());
  for (const auto& plan : plans) images.emplace_back(plan, program, arguments);
  return images;
}

namespace {

// The parent may have died before the kernel was asked to kill this process with it.
void tie_to_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitSignalled + SIGKILL);
}

// noexcept: nothing that a rank throws may unwind into the supervisor's frames, of which it has a copy.
[[noreturn]] void become_rank(const RankPlan& plan, pid_t parent, SignalScope& signals,
                              const std::function<void(const RankPlan&)>& rank_main) noexcept {
  tie_to_parent(parent);
  if (plan.leads_session) ::setsid();
  ::prctl(PR_SET_NAME, plan.name.c_str());
  signals.restore_in_child();
  rank_main(plan);
  ::_exit(0);
}

RankProcess start_rank(const RankPlan& plan, SignalScope& signals,
                       const std::function<void(const RankPlan&)>& rank_main) {
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("cannot start rank " + std::to_string(plan.rank), "check ulimit -u and memory");
  if (pid == 0) become_rank(plan, parent, signals, rank_main);
  RankProcess process{.rank = plan.rank, .local_rank = plan.local_rank, .pid = pid};
  process.leads_session = plan.leads_session;
  return process;
}

// Only once all ranks exist, so that none inherits another's.
void open_pidfds(std::vector<RankProcess>& processes) {
  for (auto& process : processes) {
    // By number: glibc 2.36 declares the function without extern "C".
    process.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
    if (!process.pidfd) throw_errno("cannot watch a rank", "Linux 5.3 or newer is needed");
  }
}

}  // namespace

void send_signal(const RankProcess& process, int signal) {
  if (!process.alive()) return;
  // Until the process leads a session, it is in our group.
  if (process.leads_session && ::kill(-process.pid, signal) == 0) return;
  ::kill(process.pid, signal);
}

void kill_and_reap(RankProcess& process) {
  if (!process.alive()) return;
  send_signal(process, SIGKILL);
  while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  process.end = ProcessEnd{.signal = SIGKILL};
}

std::vector<RankProcess> start_ranks(std::span<const RankPlan> plans, SignalScope& signals,
                                     const std::function<void(const RankPlan&)>& rank_main) {
  std::vector<RankProcess> processes;
  processes.reserve(plans.size());
  signals.hold();
  try {
    for (const auto& plan : plans) processes.push_back(start_rank(plan, signals, rank_main));
    open_pidfds(processes);
  } catch (...) {
    for (auto& process : processes) kill_and_reap(process);
    signals.release();
    throw;
  }
  signals.release();
  return processes;
}

}  // namespace lockstep::launch
