#include "launch/rank_process.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <unistd.h>

#include <csignal>

namespace lockstep::launch {
namespace {

// The parent may have died before the kernel was told to kill us with it.
void tie_to_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);
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
  // Until it leads a session, its group is ours.
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
