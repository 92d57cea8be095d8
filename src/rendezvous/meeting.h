// What ranks are about to do together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
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
  /// After how long a wait it may be taken for certain that no thread of this process will announce
  /// anything else before the meeting has been held; nothing where that may never be. From any thread.
  virtual std::optional<std::chrono::milliseconds> is_stuck_after() const = 0;
  /// Whether it no longer wants the meeting. Looked at every 50 ms while members are awaited, from the thread
  /// in meet().
  virtual bool has_given_up() const = 0;
};

/// What a rank is about to do, with whom.
struct Meeting {
  Announcement announcement = {};     ///< must be equal on all members
  std::span<const int> members = {};  ///< ranks of the job, this one included; the same on all of them
  std::uint64_t home = 0;             ///< a group whose goodbyes count here, too
  std::string_view payload = {};      ///< what the others get from this rank
  Deadline deadline = Deadline::max();
  const Caller* caller = nullptr;
  bool is_again = false;    ///< its members have met for this before, and are carrying it out: for errors
  bool keeps_group = true;  ///< `group` will meet again: what it needs is kept
  bool fails_job =
      true;  ///< whether absence fails the job; else it ends this meeting, which may be tried again
};

/// Puts into words what ranks do. Called from any thread.
struct Words {
  /// "all_reduce(sum) of float32 [4] in group 0-3, seq 7"
  std::function<std::string(const Announcement&)> describe;
  /// What this rank does where it is in no meeting: "all_reduce seq 7" when the ranks have met for it and
  /// carry it out; "" when nothing.
  std::function<std::string()> activity = [] { return std::string(); };
};

}  // namespace lockstep::rendezvous
