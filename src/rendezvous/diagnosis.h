// Why a meeting does not come about: what the ranks that are missing say they do, or that they say nothing.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/meetings.h"
#include "rendezvous/peer_links.h"
#include "rendezvous/verdict.h"

namespace lockstep::rendezvous {

/// Not for several threads at once.
class Diagnosis {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Diagnosis(int rank, PeerLinks& links, Meetings& meetings, const Describe& describe)
      : rank_(rank),
        links_(links),
        meetings_(meetings),
        describe_(describe),
        peers_(static_cast<std::size_t>(links.size())) {}

  /// Asks `ranks` what they do. Their answers come to note_answer().
  void ask(std::span<const int> ranks);
  /// Answers rank `asker`.
  void answer(int asker);
  /// What `rank` answered. Returns what is wrong if this rank and that one wait for each other.
  std::optional<Verdict> note_answer(int rank, const Announcement& announcement, Whereabouts whereabouts);

  /// Those of `ranks` that have not answered since `asked_at`.
  std::vector<int> silent_since(TimePoint asked_at, std::span<const int> ranks) const;
  /// "rank 1 is outside of collectives; rank 2 does not answer ...".
  std::string states_of(std::span<const int> ranks, TimePoint asked_at) const;

 private:
  struct Peer {
    TimePoint heard_at = {};  // its last answer
    Whereabouts whereabouts = {};
  };

  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  std::optional<Verdict> mutual_wait(int rank, const Announcement& theirs);

  int rank_;
  PeerLinks& links_;
  Meetings& meetings_;
  const Describe& describe_;
  std::vector<Peer> peers_;
};

}  // namespace lockstep::rendezvous
