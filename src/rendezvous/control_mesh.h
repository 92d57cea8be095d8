// The control mesh: before ranks do something together, each tells the others what it is about to do.
//
// A Gloo collective whose ranks disagree aborts the process, waits for ever or adds what must not be
// added. So ranks first *meet*: each sends a header of 64 bytes to every other member of the group and
// waits for theirs; only if all are equal does the collective begin. From this everything else follows:
// - headers that differ are a CollectiveMismatch, on every rank, in the same words, whoever else is late;
// - a connection that ends without a goodbye is a PeerLost. Who learns of it tells all the others, so
//   that everywhere the first lost rank is named and not one that left because of it;
// - a rank that has waited for 50 ms asks those that are missing where they are (diagnosis.h). Ranks that
//   wait for each other in different groups will wait for ever: that is a CollectiveMismatch, too. Absence
//   alone is a Timeout at the deadline (diagnosis.h), with what the absent ranks said, or that they said
//   nothing.
// After a failure the meetings of all groups fail with it.
//
// Nobody waits for a thread to read: whoever waits in a meeting reads all connections for everyone
// (peer_links.h). A thread of the mesh looks in every 10 ms, to answer questions while the rank computes.
//
// Cost per meeting and rank: members - 1 messages each way, one round.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/diagnosis.h"
#include "rendezvous/job_failure.h"
#include "rendezvous/meetings.h"
#include "rendezvous/peer_links.h"

namespace lockstep::rendezvous {

class LOCKSTEP_API ControlMesh {
 public:
  /// Takes over the connections with the other ranks, by rank (see connect_mesh()).
  ControlMesh(int rank, std::vector<UniqueFd> connections, Words words);
  /// Closes the connections without a word: peers take it for a loss unless leave() was called.
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

  /// For when members that met turn out to differ in what no announcement tells.
  /// @throws CollectiveMismatch, on this and soon on all ranks, whose text has both `sides`
  [[noreturn]] void disagree(std::vector<int> ranks, std::string sides, const std::string& where);

  /// For when the work after a meeting went wrong: throws what has failed the job, if that is known or
  /// becomes known within `patience`, or a Timeout if one of `members` does not answer. Else returns.
  void explain(std::span<const int> members, const std::string& where, std::chrono::milliseconds patience);

  /// When the job has failed and a short time for orderly endings is over, `abort` is called, once, from
  /// another thread, unless the token is gone by then. It must not block.
  using Token = JobFailure::Token;
  [[nodiscard]] Token on_failure(std::function<void()> abort);

  /// This rank holds no more meetings in `group`; where `tells`, its `members` learn that. Frees what is
  /// kept.
  void leave(std::uint64_t group, std::span<const int> members, bool tells);

  /// Tells all that this rank goes in peace.
  void leave();

  /// Number of groups that something is kept for, for diagnostics.
  std::size_t groups_kept();

 private:
  using Lock = MeshReader::Lock;

  // All below are called with mutex_ held.
  void await_members(Lock& lock, const Meeting& meeting);
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
  JobFailure failure_;
  Diagnosis diagnosis_;
  MeshReader reader_;

  std::condition_variable_any period_;  // of the service thread
  std::jthread service_;                // the last member: it uses all others
};

}  // namespace lockstep::rendezvous
