// Processes that ranks have started and left behind, while the run goes on.
#pragma once

#include <csignal>
#include <set>

#include "launch/posix.h"
#include "launch/rank_observer.h"

namespace lockstep::launch {

/// Waits for orphans that this process has adopted (descendants.h) as they end, so that they do not stay as
/// zombies until the run does. One at a time per process; lives within a SignalScope, which takes SIGCHLD
/// back.
class OrphanReaper final : public RankObserver {
 public:
  /// @throws Error without descriptors
  OrphanReaper();
  ~OrphanReaper() override;
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  /// The processes that the supervisor waits for itself.
  void leave_alone(std::set<pid_t> ranks) { ranks_ = std::move(ranks); }

  void add_to(std::vector<pollfd>& watched) const override;
  void look() override;
  std::string last_words(int) const override { return {}; }

 private:
  UniqueFd read_end_;
  UniqueFd write_end_;
  std::set<pid_t> ranks_ = {};
  struct sigaction old_ {};
};

}  // namespace lockstep::launch
