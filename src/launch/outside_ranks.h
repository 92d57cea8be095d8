// Ranks that ls::run() has forked by the number of devices, although each of these processes was started as a
// rank already: a cluster environment of the program's own, which the program's body makes, knows.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>

#include <lockstep/base/export.h>
#include <lockstep/cluster/environment.h>

namespace lockstep::launch {

/// Memory that a process and the ranks that it forks share. At most one lives at a time; it is made before
/// the ranks are. Not copied.
class LOCKSTEP_API OutsideRanks {
 public:
  /// @throws Error when there is no memory
  explicit OutsideRanks(int ranks);
  ~OutsideRanks();
  OutsideRanks(const OutsideRanks&) = delete;
  OutsideRanks& operator=(const OutsideRanks&) = delete;

  /// In the process that has forked, after its ranks have ended: whether they have left, since this process
  /// is a rank itself.
  bool were_found() const;

 private:
  friend LOCKSTEP_API void leave_if_started_outside(const ClusterEnvironment&, std::chrono::milliseconds);

  std::size_t bytes() const { return (1 + static_cast<std::size_t>(ranks_)) * sizeof(std::atomic<int>); }
  std::atomic<int>& left() const { return shared_[0]; }
  std::atomic<int>& told(int local_rank) const { return shared_[1 + local_rank]; }

  int ranks_;
  std::atomic<int>* shared_;  // how many have left; the number that each local rank's environment tells
};

/// In a forked rank whose program names `environment`: ends the process with code 0 if whoever has started
/// its parent has made that a rank, so that the parent can be it. An environment that reads the variables of
/// forked ranks tells them their own numbers, and they go on. Returns at once elsewhere. Blocks until all
/// forked ranks have come here; of those all leave, or none.
/// @throws Timeout when not all come within `timeout`
LOCKSTEP_API void leave_if_started_outside(const ClusterEnvironment& environment,
                                           std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace lockstep::launch
