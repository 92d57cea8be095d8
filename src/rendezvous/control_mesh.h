// The control mesh: before ranks do something together, each tells the others what it is about to do.
//
// A Gloo collective whose ranks disagree aborts the process, waits for ever or adds what must not be
// added. So ranks first *meet*: each sends a header of 64 bytes to every other member of the group and
// waits for theirs; only if all are equal does the collective begin. From this everything else follows:
// - headers that differ are a CollectiveMismatch, on every rank, in the same words;
// - a connection that ends without a goodbye is a PeerLost. Who learns of it tells all the others, so
//   that everywhere the first lost rank is named and not one that left because of it;
// - a rank that has waited for 50 ms asks those that are missing where they are. Two ranks that wait for
//   each other in different groups will wait for ever: that is a CollectiveMismatch, too. Absence alone
//   is a Timeout at the deadline, with what the absent ranks said, or that they said nothing.
// After a failure the meetings of all groups fail with it.
//
// Nobody waits for a thread to read: whoever waits in a meeting reads all connections for everyone, one
// thread at a time. A thread of the mesh looks in every 10 ms, to answer questions while the rank computes.
//
// Cost per meeting and rank: members - 1 messages each way, one round.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/inbox.h"
#include "rendezvous/peer_links.h"
#include "rendezvous/verdict.h"

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
};

/// Puts into words: "all_reduce(sum) of float32 [4] in group 0-3, seq 7". Called from any thread.
using Describe = std::function<std::string(const Announcement&)>;

class LOCKSTEP_API ControlMesh {
 public:
  /// Takes over the connections with the other ranks, by rank (see connect_mesh()).
  ControlMesh(int rank, std::vector<UniqueFd> connections, Describe describe);
  /// Closes the connections without a word: peers take it for a loss unless leave() was called.
  ~ControlMesh();
  ControlMesh(const ControlMesh&) = delete;
  ControlMesh& operator=(const ControlMesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return links_.size(); }

  /// Blocks until all members have announced the same. Then calls `take`, if given, with each other
  /// member's payload, by rank, under a lock. From any thread; the meetings of one group one by one.
  /// @throws CollectiveMismatch, PeerLost, Timeout as above; CommError when the caller has given up
  using Take = std::function<void(int rank, std::string_view payload)>;
  void meet(const Meeting& meeting, const Take& take = {});

  /// For when members that met turn out to differ in what no announcement tells.
  /// @throws CollectiveMismatch, on this and soon on all ranks, whose text has both `sides`
  [[noreturn]] void disagree(std::vector<int> ranks, std::string sides, const std::string& where);

  /// For when the work after a meeting went wrong: throws what has failed the job, if that is known or
  /// becomes known within `patience`, or a Timeout if one of `members` does not answer meanwhile. Else
  /// returns.
  void explain(std::span<const int> members, const std::string& where, std::chrono::milliseconds patience);

  /// When the job has failed and a short time for orderly endings is over, `abort` is called, once, from
  /// another thread, unless the token is gone by then. It must not block.
  using Token = std::shared_ptr<const std::function<void()>>;
  [[nodiscard]] Token on_failure(std::function<void()> abort);

  /// This rank holds no more meetings in `group`; where `tells`, its `members` learn that. Frees what is
  /// kept.
  void leave(std::uint64_t group, std::span<const int> members, bool tells);

  /// Tells all that this rank goes in peace.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    bool has_left = false;            // said goodbye
    Clock::time_point heard_at = {};  // its last answer
    Whereabouts whereabouts = {};
  };

  // A meeting under way. Made and destroyed with mutex_ held.
  class Attendance {
   public:
    Attendance(ControlMesh& mesh, const Meeting& meeting);
    ~Attendance();
    Attendance(const Attendance&) = delete;
    Attendance& operator=(const Attendance&) = delete;

   private:
    ControlMesh& mesh_;
    const Meeting& meeting_;
  };

  // All below are called with mutex_ held.
  void await_members(std::unique_lock<std::mutex>& lock, const Meeting& meeting);
  bool is_complete(const Meeting& meeting);
  std::vector<int> missing_from(const Meeting& meeting);
  void require_agreement(std::unique_lock<std::mutex>& lock, const Meeting& meeting);
  void require_presence(const Meeting& meeting);
  void give_up(std::unique_lock<std::mutex>& lock, const Meeting& meeting);
  void await_answers(std::unique_lock<std::mutex>& lock, std::span<const int> ranks, Clock::time_point until);
  std::vector<int> silent_since(Clock::time_point asked_at, std::span<const int> ranks) const;
  void ask(std::span<const int> ranks);
  void wait_for_news(std::unique_lock<std::mutex>& lock, Clock::time_point until);
  void read(std::unique_lock<std::mutex>& lock, Clock::time_point until);
  void deliver(int rank, Message message);
  void lose(int rank);
  void answer(int rank);
  void compare_whereabouts(int rank, const Announcement& theirs);
  std::string states_of(std::span<const int> ranks, Clock::time_point asked_at) const;
  void fail(Verdict verdict);
  [[noreturn]] void raise_failure(const std::string& where) const;
  std::string place_of(const std::string& where) const;
  void abort_if_due(std::unique_lock<std::mutex>& lock);
  void serve(const std::stop_token& stop);

  const int rank_;
  const Describe describe_;
  PeerLinks links_;

  std::mutex mutex_;                    // guards all below
  std::condition_variable changed_;     // something was read, or has failed
  std::condition_variable_any period_;  // of the service thread
  bool is_reading_ = false;             // a thread is in links_.read(), and owns events_
  std::vector<PeerLinks::Event> events_;
  Inbox inbox_;
  std::vector<Peer> peers_;
  std::vector<const Meeting*> meetings_;  // under way
  std::optional<Verdict> failure_;
  Clock::time_point failed_at_;
  std::vector<std::weak_ptr<const std::function<void()>>> aborts_;

  std::jthread service_;  // the last member: it uses all others
};

}  // namespace lockstep::rendezvous
