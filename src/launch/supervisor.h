// The supervisor: watches the ranks of one node until the last one has ended.
//
// A failure goes through two deadlines. After an end that may be a secondary failure (Blame in
// rank_observer.h) the supervisor waits a moment for the root cause; then it prints the failure and sends
// SIGTERM to the other ranks. Those that are still there after the grace period get SIGKILL. SIGINT and
// SIGTERM to the supervisor start at the second deadline: they are passed on, and no rank is blamed for what
// follows; an observer that recalls the ranks has the same effect. The supervisor sleeps until a rank ends, a
// signal arrives or a deadline passes; only where a rank has ended with code 0 before others it looks now and
// then whether one of them waits for it to join.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/launch/launch_options.h>

#include "launch/rank_observer.h"
#include "launch/run_files.h"
#include "launch/signals.h"
#include "launch/status_table.h"

namespace lockstep::launch {

/// The rank that ended a run before its time, and why.
struct Failure {
  int rank = -1;
  pid_t pid = -1;
  ProcessEnd end = {};
  std::string cause;  ///< in words, beginning with the rank
};

/// The supervisor of the ranks of one node. Single-threaded; lives as long as its ranks.
class Supervisor {
 public:
  /// Borrows all but the ranks.
  Supervisor(const LaunchOptions& options, const RunFiles& files, const StatusTable& statuses,
             SignalScope& signals, std::vector<RankProcess> ranks, std::vector<RankObserver*> observers = {});

  /// Blocks until all ranks have ended. Returns the exit code of the run.
  int run();

  /// After run(): whether a signal asked it to stop, also after a failure.
  bool was_asked_to_stop() const { return asked_to_stop_; }

  /// After run(): whether ranks were told to end, or were left to end by one that had failed.
  bool has_stopped_ranks() const { return stopping_; }

  /// After run(): who failed first, if any did.
  std::optional<Failure> failure() const;

  /// Sends SIGKILL to the ranks that are left, if an exception cut run() short.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  bool any_alive() const;
  bool may_be_missed() const;
  std::optional<Clock::time_point> next_deadline() const;
  void sleep_until_event() const;
  void collect_ended();
  Blame blame_of(const RankProcess& process) const;
  void look_for_root_cause();
  bool awaits_cause() const;
  void say(const std::string& text) const;
  void let_observers_look() const;
  void await_observers();
  void heed_observers();
  void recall();
  std::string last_stderr_lines() const;
  void say_notices();
  void look_for_memory_kills();
  void look_for_late_joiner();
  std::string memory_words() const;
  void say_news() const;
  void heed_requests();
  void interrupt(const StopRequest& request);
  void pass_on(const StopRequest& request);
  void meet_deadlines();
  void name_cause();
  void ask_to_stop(int signal, std::chrono::milliseconds grace);
  void kill_all();
  int exit_code() const;
  int finish() const;

  const LaunchOptions& options_;
  const RunFiles& files_;
  const StatusTable& statuses_;
  SignalScope& signals_;
  std::vector<RankProcess> ranks_;
  std::vector<RankObserver*> observers_;
  std::vector<std::uint32_t> notices_;                ///< of each rank that have been said
  std::optional<Clock::time_point> late_since_ = {};  ///< a rank has not joined while others wait
  std::int64_t memory_kills_before_;                  ///< by the kernel, until the look before the last
  std::int64_t memory_kills_seen_;                    ///< until the last look
  Clock::time_point next_memory_look_ = {};
  const RankProcess* root_cause_ = nullptr;          ///< the rank that explains the failure best so far
  std::string cause_;                                ///< as text, once it is determined
  int interrupted_by_ = 0;                           ///< signal that the supervisor was asked to stop by
  std::optional<Clock::time_point> interrupted_at_;  ///< the first signal to stop
  std::optional<Clock::time_point> name_at_ = {};    ///< when root_cause_ is final
  Clock::time_point end_by_ = {};                  ///< when the wait for ranks that are about to end is over
  std::optional<Clock::time_point> kill_at_ = {};  ///< when ranks that are still stopping are killed
  bool stopping_ = false;
  bool asked_to_stop_ = false;
};

// The launches that supervise ranks, and checks that all ways to start ranks share.

/// As run_rank(), for a body that has an exit code of its own.
int guard_rank(const std::function<int()>& body);

/// How a launch ended.
struct LaunchEnd {
  int exit_code = 0;
  bool was_asked_to_stop = false;
  std::optional<Failure> failure =
      {};  ///< nothing after success, and after SIGINT or SIGTERM to the supervisor
};

/// As launch_forked().
LaunchEnd run_forked_ranks(const LaunchOptions& options, const std::function<int()>& rank_main);

/// `options` with defaults filled in, and with an address that getaddrinfo() accepts.
/// @throws ConfigError naming the field that is out of range
LaunchOptions settled(LaunchOptions options);

/// @throws ConfigError when this process is a rank already
void refuse_in_rank();

}  // namespace lockstep::launch
