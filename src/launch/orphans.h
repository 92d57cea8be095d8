// How nothing of a job outlives its launcher: the launcher runs in two processes, and whatever ranks have
// started is killed with them.
//
// The first process is the one that the user started and may kill. It only passes signals on, and ends as the
// second one does, which is the supervisor of the ranks. A rank dies with its supervisor by itself
// (PR_SET_PDEATHSIG); what ranks have started would not.
#pragma once

#include <csignal>
#include <functional>
#include <map>
#include <vector>

#include <lockstep/base/export.h>

#include "launch/posix.h"
#include "launch/rank_observer.h"
#include "launch/rank_process.h"

namespace lockstep::launch {

/// From now on a process below this one whose parent ends becomes a child of this one. Inherited by nobody.
/// Source: prctl(2), PR_SET_CHILD_SUBREAPER.
void adopt_orphans();

/// Sends SIGKILL to every process below this one until there is none, for a second at most: one that hangs
/// in the kernel dies when it comes back.
void kill_descendants();

/// Waits for orphans that this process has adopted as they end, so that they do not stay as
/// zombies until the run does. One at a time per process; lives within a SignalScope, which takes SIGCHLD
/// back.
class LOCKSTEP_API OrphanReaper final : public RankObserver {
 public:
  /// @throws Error without descriptors
  OrphanReaper();
  ~OrphanReaper() override;
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  /// The processes that the supervisor waits for itself. Others may get their numbers once it has.
  /// @throws Error without descriptors
  void leave_alone(const std::vector<RankProcess>& ranks);

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_stderr_lines(int) const override { return {}; }

 private:
  bool is_rank(pid_t pid);

  UniqueFd read_end_;
  UniqueFd write_end_;
  std::map<pid_t, UniqueFd> ranks_ = {};  ///< and a pidfd of each
  struct sigaction old_ {};
};

/// Lets the second process know that the first one is gone: then it kills all that is below it, and itself.
class Lifeline final : public RankObserver {
 public:
  explicit Lifeline(UniqueFd first_process) : first_process_(std::move(first_process)) {}

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_stderr_lines(int) const override { return {}; }

 private:
  UniqueFd first_process_;  ///< reading end of a pipe that only the first process can write to
};

/// Calls `body` in the second process and returns in the first what it returned, or 128 + the signal that
/// killed it. In the second process signals are events from its first moment to its last, and a Lifeline is
/// among the observers. Call it while this process has one thread.
/// @throws Error when there can be no second process
int run_guarded(const std::function<int(LauncherEvents&)>& body);

}  // namespace lockstep::launch
