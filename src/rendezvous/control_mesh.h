// The control mesh: before ranks run a collective, each tells the others what it is about to do.
//
// A Gloo collective whose ranks disagree aborts the process, waits for ever or adds what must not be
// added. So ranks first *meet*: each sends a header of 64 bytes to every other member of the group and
// waits for theirs; only if all are equal does the collective begin. From this everything else follows:
// - headers that differ are a CollectiveMismatch, on every rank, with the same text, whichever ranks
//   are late;
// - a connection that ends without a goodbye is a PeerLost. A rank that notices it tells all others, so that
//   every rank names the first lost rank, and not one that left because of it;
// - a rank that has waited for 50 ms asks those that are missing where they are (diagnosis.h). Ranks that
//   wait for each other in different groups will wait for ever: that is a CollectiveMismatch, too. Absence
//   alone is a Timeout at the deadline (diagnosis.h), with what the absent ranks said, or that they said
//   nothing. Long before, after 30 s, one of the waiting ranks says so (LOCKSTEP_DIAGNOSES).
// After a failure the meetings of all groups fail with it.
//
// No wake-up of another thread is needed: a thread that waits in a meeting reads all connections for all
// threads (peer_links.h). A service thread of the mesh reads every 10 ms, to answer questions while the rank
// computes.
//
// Cost per meeting and rank: members - 1 messages each way, one round. Ranks of one machine have a board in
// place of messages, and the mesh is asked only where one of them is late, or differs. Members on several
// hosts announce host by host (host_meetings.h).
#pragma once

#include <atomic>
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

#include "rendezvous/diagnosis.h"
#include "rendezvous/host_meetings.h"
#include "rendezvous/meetings.h"
#include "rendezvous/message.h"
#include "rendezvous/peer_links.h"

namespace lockstep::rendezvous {

/// Why the job has failed: the first verdict counts, and every rank hears it. Not thread-safe.
class JobFailure {
 public:
  using Abort = std::function<void()>;
  using Token = std::shared_ptr<const Abort>;

  JobFailure(int rank, PeerLinks& links) : rank_(rank), links_(links) {}

  bool is_known() const { return verdict_.has_value(); }
  /// The same, from any thread and without the lock; may be a moment late.
  bool is_declared() const { return is_declared_.load(std::memory_order_relaxed); }

  /// Whether it is one of `ranks` that is to blame.
  bool concerns(std::span<const int> ranks) const;

  /// Only the first verdict counts. Also forwards a verdict that was received, so that the end of a rank
  /// cannot be noticed before its cause.
  void declare(Verdict verdict);

  /// Throws the verdict; `where` is what this rank was doing.
  [[noreturn]] void raise(const std::string& where) const;
  /// "rank 2, in all_reduce seq 3".
  std::string place_of(const std::string& where) const;

  /// `abort` is one of take_due() once the job has failed, unless the token is gone by then.
  [[nodiscard]] Token on_failure(Abort abort);
  /// The functions that are to be called now, outside of any lock, each once.
  std::vector<std::weak_ptr<const Abort>> take_due();

 private:
  int rank_;
  PeerLinks& links_;
  std::optional<Verdict> verdict_;
  std::atomic<bool> is_declared_{false};  // verdict_ has a value
  std::chrono::steady_clock::time_point declared_at_;
  std::vector<std::weak_ptr<const Abort>> aborts_;
};

class LOCKSTEP_API ControlMesh {
 public:
  /// Takes over the connections with the other ranks, by rank (see connect_mesh()).
  ControlMesh(int rank, std::vector<UniqueFd> connections, Words words);
  /// Closes the connections: peers take that for the loss of this rank unless leave() was called.
  ~ControlMesh();
  ControlMesh(const ControlMesh&) = delete;
  ControlMesh& operator=(const ControlMesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return links_.size(); }

  /// Blocks until all members have announced the same. Then calls `take`, if given, with each other
  /// member's payload, by rank, under a lock. From any thread; the meetings of one group one by one.
  /// @throws CollectiveMismatch, PeerLost, Timeout as above; CommError when the caller has given up. A
  /// Timeout
  ///   of a meeting that does not fail the job takes the announcement back: all members may try again
  using Take = std::function<void(int rank, std::string_view payload)>;
  void meet(const Meeting& meeting, const Take& take = {});

  /// For what the members of a meeting do without messages after it: blocks until the board of `meeting`
  /// shows all members, which `is_again`. @throws as meet()
  void await_board(const Meeting& meeting);

  /// The members of `group` meet by `board` from now on, which lives until leave(group).
  void use_board(std::uint64_t group, const AnnouncementBoard& board);
  /// The same for members on several hosts, which announce host by host.
  void use_hosts(std::uint64_t group, const Hosts& hosts);

  /// For members that have met and turn out to differ in something that announcements do not contain.
  /// @throws CollectiveMismatch, on this and soon on all ranks, whose text has both `sides`
  [[noreturn]] void disagree(std::vector<int> ranks, std::string sides, const std::string& where);

  /// For a failure of the work after a meeting: throws the verdict of the job, if it is known or becomes
  /// known within `patience`, or a Timeout if one of `members` does not answer. Returns otherwise.
  void explain(std::span<const int> members, const std::string& where, std::chrono::milliseconds patience);

  /// Calls `abort` once, from another thread, when the job has failed and a short time for orderly endings is
  /// over, unless the token has been destroyed by then. It must not block.
  using Token = JobFailure::Token;
  [[nodiscard]] Token on_failure(std::function<void()> abort);

  /// Tells the `members` of `group` that this rank comes to no more of its meetings: those that begin without
  /// it end.
  void say_goodbye(std::uint64_t group, std::span<const int> members);

  /// To be called when this rank holds no more meetings in `group`. Frees the data of the group once all
  /// `members` have said goodbye.
  void leave(std::uint64_t group, std::span<const int> members);

  /// Tells all ranks that this rank leaves without a failure.
  void leave();

  /// The number of groups with stored data, for diagnostics.
  std::size_t groups_kept();

 private:
  using Lock = MeshReader::Lock;

  void require_not_lost(const Meeting& meeting);

  // All below are called with mutex_ held.
  void meet_at_board(const Meeting& meeting, const Take& take);
  void meet_by_hosts(const Meeting& meeting, const Take& take);
  void await_members(Lock& lock, const Meeting& meeting);
  void tell_of_wait(Lock& lock, const Meeting& meeting, std::chrono::steady_clock::duration waited);
  void wait_a_while(Lock& lock, const Meeting& meeting, Deadline end);
  bool has_met_by_hosts(Lock& lock, const Meeting& meeting);
  void collect(Lock& lock, const Meeting& meeting);
  void tell(Lock& lock, const Meeting& meeting, const std::vector<int>& ranks);
  void wait_by_hosts(Lock& lock, const Meeting& meeting, Deadline end);
  void take_back(const Meeting& meeting);
  void require_agreement(Lock& lock, const Meeting& meeting);
  void require_presence(const Meeting& meeting);
  void give_up(Lock& lock, const Meeting& meeting);
  void await_answers(Lock& lock, Inquiry& inquiry, Deadline earliest);
  void deliver(PeerLinks::Event event);
  void understand(int rank, Message message);
  void note_recall(int rank, std::uint64_t group);
  void note_goodbye(int rank, std::uint64_t group);
  void lose(int rank);
  void fail(Verdict verdict);
  void serve(const std::stop_token& stop);
  void abort_if_due(Lock& lock);

  const int rank_;
  const Words words_;
  PeerLinks links_;

  std::mutex mutex_;  // guards all below
  Meetings meetings_;
  HostMeetings by_hosts_;
  JobFailure failure_;
  Diagnosis diagnosis_;
  MeshReader reader_;

  std::condition_variable_any period_;  // wakes the service thread
  std::jthread service_;                // the last member: it uses all others
};

}  // namespace lockstep::rendezvous
