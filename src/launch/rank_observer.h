// Whoever looks after ranks beside their supervisor.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "launch/cause.h"

namespace lockstep::launch {

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

}  // namespace lockstep::launch
