// Whoever looks after ranks beside their supervisor, and which rank is to blame for the end of a run.
#pragma once

#include <poll.h>

#include <span>
#include <string>
#include <vector>

#include <lockstep/base/rank_status.h>

#include "launch/rank_process.h"
#include "launch/signal_scope.h"
#include "launch/status_table.h"

namespace lockstep::launch {

/// How much a rank's end explains, in rising order. When one rank fails the others soon do, too: their
/// collectives break. Ends below kOwnError may be such echoes.
enum class Blame {
  kNone,        ///< alive, done, or stopped by the supervisor
  kEcho,        ///< lost a peer
  kTimeout,     ///< waited in vain for a peer
  kSilentExit,  ///< an exit code without a word
  kOwnError,    ///< said what went wrong
  kSignal       ///< killed
};

/// How far `process`, whose slot is `status`, is to blame for the end of the run.
Blame blame(const RankProcess& process, const RankStatus& status);

/// Whether the rank ended well before its work did, as exit(0) does. Nobody's fault as long as no other
/// rank misses it.
bool left_early(const RankProcess& process, const RankStatus& status);

/// A rank that is alive and waits to join all ranks of the job, in a join that `process`, whose exit code was
/// 0, has not begun. Null: nobody does.
const RankProcess* who_waits_to_join(const RankProcess& process, std::span<const RankProcess> ranks,
                                     const StatusTable& statuses);

/// First line of the error that the rank left in its slot; empty when it left none.
std::string error_line(const RankStatus& status);

/// "SIGKILL" for 9.
std::string signal_name(int signal);

/// `rank 1 (node 0, pid 77) killed by SIGKILL in all_reduce seq 5`. Of a program that is not lockstep's,
/// which does not write to its slot, nobody knows where it was.
std::string describe_end(const RankProcess& process, int node, const RankStatus& status,
                         bool is_written = true);

/// For a rank that waited in vain: `; waiting for rank 1 (after all_reduce seq 19)`, all those of `ranks`
/// that have not come to its last collective. Else empty.
std::string describe_wait(const RankProcess& waiting, std::span<const RankProcess> ranks,
                          const StatusTable& statuses);

struct Failure;

/// The supervisor sleeps until one of its descriptors, or of its own, is ready.
class RankObserver {
 public:
  virtual ~RankObserver() = default;

  /// Adds what is to wake the supervisor.
  virtual void add_to(std::vector<pollfd>& watched) const = 0;
  /// Does what there is to do, without blocking; called whenever the supervisor is awake.
  virtual void look() = 0;
  /// All ranks have ended; called until it returns true: what they have written, which a slow reader may keep
  /// waiting, is then with its reader.
  virtual bool has_finished() { return true; }
  /// What that rank said before its end, for the report of a failure; empty: nothing.
  virtual std::string last_words(int local_rank) const = 0;
  /// The error that it left beside, in one line; empty: none.
  virtual std::string error_of(int /*local_rank*/) const { return {}; }
  /// Takes a message of the supervisor to people, which must not wait for a reader; false: does not.
  virtual bool say(const std::string& /*text*/) { return false; }
  /// What the supervisor is to say, once; empty: nothing.
  virtual std::string take_news() { return {}; }
  /// Whether the ranks are to stop for a reason that is none of theirs.
  virtual bool recalls_ranks() const { return false; }
  /// A rank has failed, and is about to be blamed for it. `exit_code` is the run's; `words` as last_words().
  virtual void on_failure(const Failure& /*failure*/, Blame /*blame*/, int /*exit_code*/,
                          const std::string& /*words*/) {}
};

/// Signals, and observers that see to it that nothing outlives whoever has started this process. Borrows all.
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
