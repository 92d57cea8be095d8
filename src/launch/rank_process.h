// A rank as its supervisor sees it, and how to start one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "launch/rank_plan.h"
#include "launch/signal_scope.h"

namespace lockstep::launch {

/// How a process ended: by a signal, or with an exit code where `signal` is 0.
struct ProcessEnd {
  int signal = 0;
  int exit_code = 0;

  bool failed() const { return signal != 0 || exit_code != 0; }
  /// What a shell would report.
  int status() const { return signal != 0 ? 128 + signal : exit_code; }
};

/// A rank that was started.
struct RankProcess {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = -1;
  UniqueFd pidfd = {};  ///< readable once the process has ended; closed when that was noticed
  std::optional<ProcessEnd> end = {};
  bool told_to_stop = false;   ///< by the supervisor, so that its end is nobody's fault
  bool leads_session = false;  ///< signals go to it and all processes that it started

  bool alive() const { return !end; }
};

/// Sends it a signal, if it has not ended.
void send_signal(const RankProcess& process, int signal);

/// Ends `process` if it has not ended, and forgets it.
void kill_and_reap(RankProcess& process);

/// Forks one process per plan. Each is tied to this one's life, gets its name and its signals back and
/// calls `rank_main`, which must not return and, where threads exist, may only do what is safe in a
/// signal handler.
/// @throws Error when a process cannot be started; those that were are killed
std::vector<RankProcess> start_ranks(std::span<const RankPlan> plans, SignalScope& signals,
                                     const std::function<void(const RankPlan&)>& rank_main);

}  // namespace lockstep::launch
