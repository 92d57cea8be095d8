// Processes that ranks have started: all that are below this one, and those that were left behind.
#pragma once

#include <csignal>
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
  std::string last_words(int) const override { return {}; }

 private:
  bool is_rank(pid_t pid);

  UniqueFd read_end_;
  UniqueFd write_end_;
  std::map<pid_t, UniqueFd> ranks_ = {};  ///< and a pidfd of each
  struct sigaction old_ {};
};

}  // namespace lockstep::launch
