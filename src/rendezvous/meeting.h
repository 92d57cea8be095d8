// What ranks are about to do together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/sockets.h"
#include "rendezvous/message.h"

namespace lockstep::rendezvous {

/// Whoever waits for a meeting.
class Caller {
 public:
  virtual ~Caller() = default;
  /// Whether no thread of this process will announce anything else before the meeting has been held.
  /// Called from any thread; false when in doubt.
  virtual bool is_stuck() const = 0;
  /// Whether it no longer wants the meeting. Looked at every 50 ms at least, from the thread in meet().
  virtual bool has_given_up() const = 0;
};

/// What a rank is about to do, with whom.
struct Meeting {
  Announcement announcement = {};     ///< sequence numbers of a group are counted from 1
  std::span<const int> members = {};  ///< ranks of the job, this one included; the same on all of them
  std::uint64_t home = 0;             ///< a group whose goodbyes count here, too
  std::string_view payload = {};      ///< what the others get from this rank
  Deadline deadline = Deadline::max();
  const Caller* caller = nullptr;

  bool is_stuck() const { return caller != nullptr && caller->is_stuck(); }
};

/// Puts into words: "all_reduce(sum) of float32 [4] in group 0-3, seq 7". Called from any thread.
using Describe = std::function<std::string(const Announcement&)>;

}  // namespace lockstep::rendezvous
