// Why a meeting does not come about: what other ranks say they do, and who waits for whom.
//
// A rank that has waited for a while asks those that are missing where they are. If it is stuck, too, the
// question carries a trail: "I wait for you in this meeting". Whoever gets it, is stuck itself and has not
// come there adds itself and passes the trail on to those that it waits for. A trail that comes back to one
// of its ranks is a circle of ranks that wait for each other, and will for ever (the algorithm is Chandy's,
// Misra's and Haas's of 1983). Connections keep the order of messages, so that nobody is blamed whose
// announcement is still on its way.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "rendezvous/meetings.h"
#include "rendezvous/peer_links.h"
#include "rendezvous/verdict.h"
#include "rendezvous/whereabouts.h"

namespace lockstep::rendezvous {

/// What is known of another rank.
struct Peer {
  using TimePoint = std::chrono::steady_clock::time_point;

  bool has_left = false;         ///< said goodbye to the job
  int unanswered = 0;            ///< questions
  TimePoint heard_at = {};       ///< when it answered last
  TimePoint quiet_since = {};    ///< no sign of life since, where `unanswered` is not 0
  Whereabouts whereabouts = {};  ///< its last answer
};

/// Not for several threads at once.
class Diagnosis {
 public:
  Diagnosis(int rank, PeerLinks& links, Meetings& meetings, const Words& words)
      : rank_(rank),
        links_(links),
        meetings_(meetings),
        words_(words),
        peers_(static_cast<std::size_t>(links.size())),
        last_trails_(static_cast<std::size_t>(links.size())) {}

  int rank() const { return rank_; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  void note_goodbye(int rank) { peers_[static_cast<std::size_t>(rank)].has_left = true; }

  /// Asks those of `ranks` that are others, and have not left, what they do. Answers come to note_answer().
  void ask(std::span<const int> ranks);
  void note_answer(int rank, Whereabouts whereabouts);

  /// What this rank does.
  Whereabouts own() const;
  /// Answers rank `asker`.
  void answer(int asker);
  /// Passes on the trail that came with a question. Returns what is wrong if it is a circle.
  std::optional<Verdict> follow(Trail trail);

 private:
  void send_question(int rank, const std::string& trail);

  int rank_;
  PeerLinks& links_;
  Meetings& meetings_;
  const Words& words_;
  std::vector<Peer> peers_;                 // by rank
  std::vector<std::uint64_t> last_trails_;  // that were passed on, by the rank of the first hop
  std::uint64_t trails_ = 0;                // that began here
};

}  // namespace lockstep::rendezvous
