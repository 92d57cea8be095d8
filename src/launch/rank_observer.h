// Observers that look after ranks beside their supervisor, and which rank is to blame for the end of a run.
#pragma once

#include <poll.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/rank_status.h>

#include "launch/rank_process.h"
#include "launch/signals.h"
#include "launch/status_table.h"

namespace lockstep::launch {

/// How well the end of a rank explains the failure of a run, in rising order. When one rank fails the others
/// soon do, too, since their collectives break. Ends below kOwnError may be such secondary failures
/// ("echoes").
enum class Blame {
  kNone,        ///< alive, done, or stopped by the supervisor
  kEcho,        ///< lost a peer
  kTimeout,     ///< waited in vain for a peer
  kSilentExit,  ///< an exit code without a message
  kOwnError,    ///< reported an error of its own
  kSignal       ///< killed
};

/// How far `process`, whose slot is `status`, is to blame for the end of the run.
Blame blame(const RankProcess& process, const RankStatus& status);

/// Whether the rank has ended with code 0 before its work was done, as by exit(0). That is no failure as long
/// as no other rank waits for it.
bool left_early(const RankProcess& process, const RankStatus& status);

/// A running rank that waits to join all ranks of the job, in a join that `process`, whose exit code was 0,
/// has not begun. Null where there is none.
const RankProcess* who_waits_to_join(const RankProcess& process, std::span<const RankProcess> ranks,
                                     const StatusTable& statuses);

/// First line of the error that the rank left in its slot; empty when it left none.
std::string error_line(const RankStatus& status);

/// "SIGKILL" for 9.
std::string signal_name(int signal);

/// `rank 1 (node 0, pid 77) killed by SIGKILL in all_reduce seq 5`. Of a program that is not lockstep's,
/// which does not write to its slot, the place is unknown.
std::string describe_end(const RankProcess& process, int node, const RankStatus& status,
                         bool is_written = true);

/// A rank that waits for all ranks to join, and one that is running and has not begun to.
struct LateJoin {
  const RankProcess* waiting;
  const RankProcess* late;
};

/// The first such pair, if there is any.
std::optional<LateJoin> who_is_late_to_join(std::span<const RankProcess> ranks, const StatusTable& statuses);

/// The first line of the rank's last notice.
std::string notice_line(const RankStatus& status);

/// For a rank that waited in vain: `; waiting for rank 1 (after all_reduce seq 19)`, all those of `ranks`
/// that have not come to its last collective. Else empty.
std::string describe_wait(const RankProcess& waiting, std::span<const RankProcess> ranks,
                          const StatusTable& statuses);

struct Failure;

/// The supervisor sleeps until one of its descriptors, or of its own, is ready.
class RankObserver {
 public:
  virtual ~RankObserver() = default;

  /// Adds the descriptors that wake the supervisor.
  virtual void add_to(std::vector<pollfd>& watched) const = 0;
  /// Handles what has arrived, without blocking; called whenever the supervisor is awake.
  virtual void look() = 0;
  /// All ranks have ended; called until it returns true: what they have written, which a slow reader may keep
  /// waiting, is then with its reader.
  virtual bool has_finished() { return true; }
  /// The last lines of that rank on stderr, for the report of a failure; empty where there are none.
  virtual std::string last_stderr_lines(int local_rank) const = 0;
  /// The error that the rank wrote to its error file, in one line; empty where there is none.
  virtual std::string error_of(int /*local_rank*/) const { return {}; }
  /// Prints a message of the supervisor without waiting for a reader; false where this observer prints
  /// nothing.
  virtual bool say(const std::string& /*text*/) { return false; }
  /// A message that the supervisor has to print, returned once; empty where there is none.
  virtual std::string take_news() { return {}; }
  /// Whether the ranks have to stop for a reason outside of this node.
  virtual bool recalls_ranks() const { return false; }
  /// Called when a rank has been found to be the root cause of a failure. `exit_code` is the run's; `words`
  /// as last_stderr_lines().
  virtual void on_failure(const Failure& /*failure*/, Blame /*blame*/, int /*exit_code*/,
                          const std::string& /*words*/) {}
};

/// Signals, and the observers that end this process with the one that has started it. Borrows all.
class LauncherEvents {
 public:
  explicit LauncherEvents(SignalScope& signals) : signals_(signals) {}

  void add(RankObserver& observer) { observers_.push_back(&observer); }

  SignalScope& signals() const { return signals_; }
  const std::vector<RankObserver*>& observers() const { return observers_; }

  /// Blocks until one of `watched` or of these is there, or `timeout_ms` (-1: none) have passed; then lets
  /// the observers look. Signals are left to the caller.
  void wait(std::vector<pollfd> watched, int timeout_ms) const;

 private:
  SignalScope& signals_;
  std::vector<RankObserver*> observers_;
};

}  // namespace lockstep::launch
