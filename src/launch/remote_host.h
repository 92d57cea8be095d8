// The hosts of a job as the launcher sees them that the user started: processes of a remote shell, watched
// until the last is done.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/launch/launch_options.h>

#include "launch/outlet.h"
#include "launch/output_relay.h"
#include "launch/rank_process.h"
#include "launch/remote_command_payload.h"
#include "launch/signal_scope.h"

namespace lockstep::launch {

/// See above.
class RemoteHost {
 public:
  /// `order` is sent as its stdin can take it.
  RemoteHost(std::string name, RankProcess shell, UniqueFd to_stdin, const std::string& order);

  const std::string& name() const { return name_; }
  RankProcess& shell() { return shell_; }
  const RankProcess& shell() const { return shell_; }
  bool alive() const { return shell_.alive(); }
  bool is_ready() const { return is_ready_; }

  /// A line of its stderr; true: it was meant for us.
  bool hear(std::string_view line);

  void add_to(std::vector<pollfd>& watched) const;
  /// Sends what can be sent at once.
  void flush();
  void send(std::string_view line);

  /// Passes a signal on to its ranks; to the remote shell where there are none yet.
  void pass_on(int signal);
  /// Without patience: what is there ends with its stdin.
  void kill();
  /// Looks whether the remote shell has ended, and waits for it if so.
  void look();

  /// Whether the connection to its ranks has broken, of which nobody there could say a word, or its launcher
  /// was stopped by a signal.
  bool is_lost() const;
  bool has_told_failure() const { return failure_.has_value(); }
  /// From now on it is to blame for nothing.
  void give_up() { shell_.told_to_stop = true; }
  /// Whether it runs, or has done what it was for.
  bool takes_part() const { return alive() || !shell_.end->failed(); }

  /// How far it is to blame for the end of the job.
  Blame blame() const;
  /// In words, beginning with the host.
  std::string cause() const;
  int exit_code() const;

 private:
  std::string name_;
  RankProcess shell_;
  UniqueFd to_stdin_;
  Outlet orders_;
  bool is_ready_ = false;
  std::optional<NodeReport> failure_ = {};
  std::string last_line_ = {};  ///< that it printed on stderr
};

/// See above. Single-threaded.
class RemoteJob {
 public:
  struct Patience {
    std::chrono::milliseconds start{60'000};       ///< until all hosts are ready
    std::chrono::milliseconds grace = kHostGrace;  ///< from asking to stop to killing
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
