// The hosts of a job as the launcher that the user started sees them: processes of a remote shell, watched
// until the last one has ended; and the address at which they reach the first of them.
#pragma once

#include <ifaddrs.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/launch/launch_options.h>

#include "launch/output_relay.h"
#include "launch/rank_process.h"
#include "launch/remote_launcher.h"
#include "launch/signals.h"

namespace lockstep::launch {

/// A host of the job: the process of the remote shell that leads to it.
class RemoteHost {
 public:
  /// `order` is sent to its stdin as fast as that accepts it.
  RemoteHost(std::string name, RankProcess shell, UniqueFd to_stdin, const std::string& order);

  const std::string& name() const { return name_; }
  RankProcess& shell() { return shell_; }
  const RankProcess& shell() const { return shell_; }
  bool alive() const { return shell_.alive(); }
  bool is_ready() const { return is_ready_; }

  /// Handles a line of its stderr; true where it was a message for this launcher.
  bool hear(std::string_view line);

  void add_to(std::vector<pollfd>& watched) const;
  /// Sends what can be sent without blocking.
  void flush();
  void send(std::string_view line);

  /// Passes a signal on to its ranks; to the remote shell where there are none yet.
  void pass_on(int signal);
  /// Kills the remote shell at once; the launcher on the host ends with its stdin.
  void kill();
  /// Checks whether the remote shell has ended, and reaps it if so.
  void look();

  /// Whether the connection to its ranks has broken without a report, or its launcher was stopped by a
  /// signal.
  bool is_lost() const;
  bool has_told_failure() const { return failure_.has_value(); }
  /// Marks the host as stopped, so that it is not blamed for its end.
  void give_up() { shell_.told_to_stop = true; }
  /// Whether the host is running, or has ended without a failure.
  bool takes_part() const { return alive() || !shell_.end->failed(); }

  /// How well its end explains the end of the job.
  Blame blame() const;
  /// The cause as text that begins with the host.
  std::string cause() const;
  int exit_code() const;

 private:
  std::string name_;
  RankProcess shell_;
  UniqueFd to_stdin_;
  Outlet orders_;
  bool is_ready_ = false;
  std::optional<NodeReport> failure_ = {};
  std::string last_line_ = {};  ///< the last line that it printed on stderr
};

/// The hosts of a job, watched until the last one has ended. Single-threaded.
class RemoteJob {
 public:
  struct Patience {
    std::chrono::milliseconds start{60'000};       ///< until all hosts are ready
    std::chrono::milliseconds grace = kHostGrace;  ///< from asking to stop to killing
  };

  /// Borrows `relay`, whose processes are the hosts in their order, and `signals`. With `min_hosts` the job
  /// continues without lost hosts, as long as the first one and at least so many are there; 0: it needs all
  /// of them.
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
  void look_for_root_cause();
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
  const RemoteHost* root_cause_ = nullptr;  ///< the host that explains the failure best so far
  int interrupted_by_ = 0;
  bool stopping_ = false;
  bool never_started_ = false;  ///< some hosts did not answer in time
  Clock::time_point stopping_since_{};
  std::optional<Clock::time_point> start_by_;
  std::optional<Clock::time_point> name_at_ = {};
  std::optional<Clock::time_point> kill_at_ = {};
};

/// A numeric address at which the others can reach `host` ([USER@]NAME as ssh takes it): what its name stands
/// for here or, where that is this machine itself, an address of one of its interfaces. The name itself where
/// it stands for nothing here, as ssh's own names do. Blocks as long as the system's resolver does.
std::string address_of_host(const std::string& host);

/// Of the addresses of a machine's interfaces one at which others may reach it: of IPv4 where there is one,
/// else of IPv6; empty: there is none.
LOCKSTEP_API std::string reachable_address(const ifaddrs* interfaces);

}  // namespace lockstep::launch
