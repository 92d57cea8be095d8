// Whoever looks after ranks beside their supervisor.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

namespace lockstep::launch {

struct NodeMessage;

/// The supervisor sleeps until one of its descriptors, or of its own, is ready.
class RankObserver {
 public:
  virtual ~RankObserver() = default;

  /// Adds what is to wake the supervisor.
  virtual void add_to(std::vector<pollfd>& watched) const = 0;
  /// Does what there is to do, without blocking; called whenever the supervisor is awake.
  virtual void look() = 0;
  /// What that rank said before its end, for the report of a failure; empty: nothing.
  virtual std::string last_words(int local_rank) const = 0;
  /// Takes a message of the supervisor to people, which must not wait for a reader; false: does not.
  virtual bool say(const std::string& /*text*/) { return false; }
  /// What is to be said beside that failure, for programs; empty: nothing.
  virtual std::string note_of(const NodeMessage& /*failure*/) const { return {}; }
};

}  // namespace lockstep::launch
