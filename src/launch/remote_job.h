// Watches the hosts of a job until the last is done. What supervisor.h does with ranks, this does with hosts:
// a failure that may be an echo of another host's is kept for a moment, then it is named and the other hosts
// are asked to stop; those that are still there after the grace period lose their connection, which ends all
// there.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "launch/output_relay.h"
#include "launch/remote_host.h"
#include "launch/signal_scope.h"

namespace lockstep::launch {

/// See above. Single-threaded.
class RemoteJob {
 public:
  struct Patience {
    std::chrono::milliseconds start{60'000};  ///< until all hosts are ready
    std::chrono::milliseconds grace{30'000};  ///< from asking to stop to killing
  };

  /// Borrows `relay`, whose processes are the hosts in their order, and `signals`. With `min_hosts` the job
  /// goes on without hosts that are lost, as long as the first one and so many of all are there; 0: not
  /// without any.
  RemoteJob(std::vector<RemoteHost> hosts, OutputRelay& relay, SignalScope& signals, Patience patience,
            int min_hosts);
  /// Kills what is left, if an exception cut run() short.
  ~RemoteJob();
  RemoteJob(const RemoteJob&) = delete;
  RemoteJob& operator=(const RemoteJob&) = delete;

  /// Blocks until all hosts are done. Returns the exit code of the job.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  bool any_alive() const;
  void sleep_until_event() const;
  void look();
  void heed_requests();
  void start_when_all_are_ready();
  void end_with_first_host();
  void go_on_without_lost_hosts();
  void look_for_culprit();
  void meet_deadlines();
  void name_cause();
  void name_absent();
  void ask_to_stop(int signal);
  void kill_all();

  std::vector<RemoteHost> hosts_;
  OutputRelay& relay_;
  SignalScope& signals_;
  Patience patience_;
  int min_hosts_;
  const RemoteHost* culprit_ = nullptr;  ///< best explanation so far
  int interrupted_by_ = 0;
  bool stopping_ = false;
  bool never_started_ = false;  ///< some hosts did not answer in time
  Clock::time_point stopping_since_{};
  std::optional<Clock::time_point> start_by_;
  std::optional<Clock::time_point> name_at_ = {};
  std::optional<Clock::time_point> kill_at_ = {};
};

}  // namespace lockstep::launch
