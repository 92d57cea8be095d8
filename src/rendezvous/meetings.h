// The meetings of ranks: what they are about to do together, who has announced it, and who has come.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <lockstep/base/export.h>

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

class LOCKSTEP_API Inbox {
 public:
  /// Of rank `rank`.
  explicit Inbox(int rank) : rank_(rank) {}

  struct Entry {
    Announcement announcement;
    std::string payload;
  };

  void push(int rank, Message message);

  /// What `rank` announced first in `group` and nobody has taken yet; null if nothing.
  const Entry* front(std::uint64_t group, int rank) const;

  /// Takes that away; there is one.
  void pop(std::uint64_t group, int rank);
  /// Takes it away if there is one; returns whether there was.
  bool drop(std::uint64_t group, int rank);

  /// `rank` has left `group`: nothing more comes from it.
  void note_left(std::uint64_t group, int rank);
  bool has_left(std::uint64_t group, int rank) const;

  /// This rank has left `group`. What is kept for it is freed when all other `members` have left, too.
  void leave(std::uint64_t group, std::span<const int> members);

  /// Frees what is kept for `group` if nobody waits in it.
  void trim(std::uint64_t group);

  /// Number of groups that something is kept for.
  std::size_t size() const { return groups_.size(); }

 private:
  struct Group {
    std::map<int, std::vector<Entry>> waiting = {};  // by rank, which is rarely more than one ahead
    std::vector<int> left = {};
    bool is_over = false;    // this rank has left, too
    std::size_t others = 0;  // that have left or will
  };

  void free_if_over(std::uint64_t group);

  int rank_;
  std::unordered_map<std::uint64_t, Group> groups_;
};

/// A meeting that this rank is in.
struct MeetingUnderWay {
  const Meeting* meeting;
  std::uint64_t number;  ///< among this rank's, from 1
  std::chrono::steady_clock::time_point begun_at;
  std::vector<int> gave_up = {};  ///< members that came, and have taken that back since

  /// Whether nothing else will go on in this process before it has been held.
  bool is_stuck() const;
};

/// Not for several threads at once.
class Meetings {
 public:
  explicit Meetings(int rank) : rank_(rank), inbox_(rank) {}

  Inbox& inbox() { return inbox_; }
  const Inbox& inbox() const { return inbox_; }

  const std::vector<MeetingUnderWay>& under_way() const { return under_way_; }
  void begin(const Meeting& meeting);
  void end(const Meeting& meeting);

  /// `rank` takes back what it announced in `group`; returns whether that is still here.
  bool take_back(std::uint64_t group, int rank);

  /// The one that this rank is stuck in; null if none.
  const MeetingUnderWay* stuck() const;

  /// What `member` announced for `meeting`; null if nothing yet. This rank's own is the meeting's.
  const Announcement* announced(const Meeting& meeting, int member) const;

  bool is_complete(const Meeting& meeting) const;
  /// Whether all that have come announced the same.
  bool is_unanimous(const Meeting& meeting) const;
  std::vector<int> missing_from(const Meeting& meeting) const;
  /// Those of them that never came; if there are none, all of them.
  std::vector<int> absent_from(const Meeting& meeting) const;
  /// The lowest member that has come.
  int first_present(const Meeting& meeting) const;

  /// Whether `rank` waits for this one in `group` and in vain so far: this rank is in no meeting of it.
  bool is_awaited(std::uint64_t group, int rank) const;

 private:
  int rank_;
  Inbox inbox_;
  std::vector<MeetingUnderWay> under_way_;
  std::uint64_t begun_ = 0;
};

}  // namespace lockstep::rendezvous
