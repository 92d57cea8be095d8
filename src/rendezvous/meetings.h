// The meetings of ranks before collectives: what they are about to do, and which ranks have announced it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
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

/// The code that waits for a meeting.
class Caller {
 public:
  virtual ~Caller() = default;
  /// The waiting time after which it is certain that no thread of this process will announce anything else
  /// before this meeting has taken place; nothing where that is never certain. Called from any thread.
  virtual std::optional<std::chrono::milliseconds> is_stuck_after() const = 0;
  /// Whether the caller no longer waits for the meeting. Called every 50 ms while members are awaited, from
  /// the thread in meet().
  virtual bool has_given_up() const = 0;
};

/// Where the members of a group show their announcements to each other in memory that they share, in place of
/// messages. Used by one thread at a time, but for is_ahead().
class AnnouncementBoard {
 public:
  virtual ~AnnouncementBoard() = default;
  /// Shows the others what this rank announces next.
  virtual void show(const Announcement& announcement, std::string_view payload) = 0;
  /// What `rank` shows beside that; null where it has not come so far.
  virtual const Announcement* front(int rank) const = 0;
  virtual std::string_view payload(int rank) const = 0;
  /// Waits until all members show something, for about 10 ms at most. Returns whether they do.
  virtual bool await_all() = 0;
  /// Whether `rank` has shown more announcements than this rank. From any thread.
  virtual bool is_ahead(int rank) const = 0;
};

/// The board of the ranks of one host, of a group on several hosts. The first of them passes on to the others
/// what ranks of other hosts announce.
class HostBoard : public AnnouncementBoard {
 public:
  /// For the first rank, after all have shown what they announce: gives the others `bytes`.
  virtual void relay(std::string_view bytes) = 0;
  /// For the others: waits until there are bytes that go with the last announcement, for about 10 ms at most.
  /// Returns whether there are.
  virtual bool await_relay() = 0;
  /// Those bytes; nothing where there are none yet.
  virtual std::optional<std::string_view> relayed() const = 0;
};

/// The ranks of a group on several hosts, whose ranks share a board each.
struct Hosts {
  HostBoard* board = nullptr;         ///< of this host
  std::vector<int> here = {};         ///< the ranks of this host
  std::vector<int> elsewhere = {};    ///< those of the others
  std::vector<int> first_ranks = {};  ///< the first one of each other host
  std::size_t most_payload = 0;       ///< bytes of a payload that fit where they are passed on

  bool is_here(int rank) const { return std::ranges::find(here, rank) != here.end(); }
  /// Whether `rank` is the one that stands for this host.
  bool is_first(int rank) const { return here.front() == rank; }
};

/// What a rank is about to do, and with which ranks.
struct Meeting {
  Announcement announcement = {};     ///< must be equal on all members
  std::span<const int> members = {};  ///< ranks of the job, this one included; the same on all of them
  std::uint64_t home = 0;             ///< another group whose goodbyes count here, too
  std::string_view payload = {};      ///< data of this rank for the others
  Deadline deadline = Deadline::max();
  const Caller* caller = nullptr;
  AnnouncementBoard* board = nullptr;  ///< of all members; null: announcements are messages
  const Hosts* hosts = nullptr;        ///< of members that announce host by host, by boards of their hosts
  std::size_t most_payload = 0;  ///< bytes that a member may bring; the same on all; where `hosts` is set
  bool is_again = false;    ///< its members have met for the same work before, and are running it; for errors
  bool keeps_group = true;  ///< `group` will meet again, and its data stay stored
  bool fails_job =
      true;  ///< whether absence fails the job; else it ends this meeting, which may be tried again
};

/// Describes what ranks do. Called from any thread.
struct Words {
  /// "all_reduce(sum) of float32 [4] in group 0-3, seq 7"
  std::function<std::string(const Announcement&)> describe;
  /// What this rank is doing outside of meetings: "all_reduce seq 7" when the ranks have met for it and run
  /// it; "" when nothing.
  std::function<std::string()> activity = [] { return std::string(); };
};

class LOCKSTEP_API Inbox {
 public:
  /// The inbox of rank `rank`.
  explicit Inbox(int rank) : rank_(rank) {}

  struct Entry {
    Announcement announcement;
    std::string payload;
    bool is_relayed = false;  ///< it came from another rank than the one that announces it
  };

  /// Stores the announcement of `rank`. One with a number is stored once, in whichever ways it comes.
  void push(int rank, Message message, bool is_relayed = false);

  /// The first announcement of `rank` in `group` that was not taken yet; null where there is none.
  const Entry* front(std::uint64_t group, int rank) const;

  /// The one with this number; null where there is none.
  const Entry* find(std::uint64_t group, int rank, std::uint64_t sequence) const;
  /// Removes all up to the one with this number.
  void drop_up_to(std::uint64_t group, int rank, std::uint64_t sequence);

  /// Removes that announcement, which must exist.
  void pop(std::uint64_t group, int rank);
  /// Removes that announcement if there is one; returns whether there was.
  bool drop(std::uint64_t group, int rank);

  /// Notes that `rank` has left `group`: nothing more will arrive from it.
  void note_left(std::uint64_t group, int rank);
  bool has_left(std::uint64_t group, int rank) const;

  /// Notes that this rank has left `group`. Its data are freed when all other `members` have left, too.
  void leave(std::uint64_t group, std::span<const int> members);

  /// Frees the data of `group` if no rank waits in it.
  void trim(std::uint64_t group);

  /// The number of groups with stored data.
  std::size_t size() const { return groups_.size(); }

 private:
  struct Group {
    std::map<int, std::vector<Entry>> waiting =
        {};  // by rank; a rank is rarely more than one announcement ahead
    std::vector<int> left = {};
    bool is_over = false;    // whether this rank has left
    std::size_t others = 0;  // that have left or will
  };

  void free_if_over(std::uint64_t group);

  int rank_;
  std::unordered_map<std::uint64_t, Group> groups_;
};

/// A meeting in which this rank is waiting.
struct ActiveMeeting {
  const Meeting* meeting;
  std::uint64_t number;  ///< number among the meetings of this rank, from 1
  std::chrono::steady_clock::time_point begun_at;
  std::vector<int> gave_up = {};  ///< members that had arrived and have recalled that since

  /// Whether no thread of this process can announce anything else before it has taken place.
  bool is_stuck() const;
};

/// Not thread-safe.
class Meetings {
 public:
  explicit Meetings(int rank) : rank_(rank), inbox_(rank) {}

  Inbox& inbox() { return inbox_; }
  const Inbox& inbox() const { return inbox_; }

  const std::vector<ActiveMeeting>& under_way() const { return under_way_; }
  void begin(const Meeting& meeting);
  void end(const Meeting& meeting);

  /// Handles a recall of the announcement of `rank` in `group`; returns whether the announcement is still
  /// here.
  bool take_back(std::uint64_t group, int rank);

  /// The meeting in which this rank is stuck; null where there is none.
  const ActiveMeeting* stuck() const;

  /// The announcement of `member` for `meeting`; null where there is none yet. For this rank it is the
  /// meeting's own.
  const Announcement* announced(const Meeting& meeting, int member) const;
  /// What another member that has announced it brings along.
  std::string_view payload(const Meeting& meeting, int member) const;

  bool is_complete(const Meeting& meeting) const;
  /// Whether all members that have arrived have the same announcement.
  bool is_unanimous(const Meeting& meeting) const;
  std::vector<int> missing_from(const Meeting& meeting) const;
  /// Whether `member` had arrived in `meeting`, in which this rank is, and has recalled that since.
  bool has_given_up(const Meeting& meeting, int member) const;
  /// The missing members that have never arrived; if there are none, all missing members.
  std::vector<int> absent_from(const Meeting& meeting) const;
  /// The lowest member that has arrived.
  int first_present(const Meeting& meeting) const;

  /// Whether `rank` waits for this rank in `group` while this rank is in no meeting of that group.
  bool is_awaited(std::uint64_t group, int rank) const;

  /// From now on the members of `group` announce by `board`; by null, by messages again. With `hosts` those
  /// of other hosts announce by messages.
  void use_board(std::uint64_t group, const AnnouncementBoard* board, const Hosts* hosts = nullptr);

 private:
  struct Board {
    const AnnouncementBoard* board;
    const Hosts* hosts;
  };

  bool has_announced(std::uint64_t group, int rank) const;
  const Inbox::Entry* received(const Meeting& meeting, int member) const;

  int rank_;
  Inbox inbox_;
  std::unordered_map<std::uint64_t, Board> boards_;  // by group
  std::vector<ActiveMeeting> under_way_;
  std::uint64_t begun_ = 0;
};

/// While it lives, this rank is in the meeting. Both borrowed.
class MeetingScope {
 public:
  MeetingScope(Meetings& meetings, const Meeting& meeting) : meetings_(meetings), meeting_(meeting) {
    meetings_.begin(meeting_);
  }
  ~MeetingScope() { meetings_.end(meeting_); }
  MeetingScope(const MeetingScope&) = delete;
  MeetingScope& operator=(const MeetingScope&) = delete;

 private:
  Meetings& meetings_;
  const Meeting& meeting_;
};

}  // namespace lockstep::rendezvous
