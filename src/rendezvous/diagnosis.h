// Why a meeting does not come about, and who is to blame: ranks that wait ask those that are missing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/meetings.h"
#include "rendezvous/peer_links.h"
#include "rendezvous/verdict.h"

namespace lockstep::rendezvous {

enum class Doing {
  kElse,     ///< nothing that other ranks take part in
  kWaiting,  ///< it waits for others to come
  kWorking   ///< all came; it carries out what they met for
};

/// What a rank is doing, as it tells others.
struct Whereabouts {
  Doing doing = Doing::kElse;
  std::vector<int> missing = {};  ///< kWaiting: ranks that it waits for
  std::string text = {};          ///< what it waits for, or carries out, in words
};

/// A rank that is stuck: in a meeting of `group`, which is its `number`-th; `text` says what for.
struct Hop {
  int rank = 0;
  std::uint64_t number = 0;
  std::uint64_t group = 0;
  std::string text = {};
};

/// Who waits for whom: the second hop's rank is one that the first waits for, and so on; the last waits for
/// who gets this. A rank is there once.
struct Trail {
  std::uint64_t number = 0;  ///< among those that began with this first hop
  std::vector<Hop> hops = {};
};

std::string to_payload(const Whereabouts& whereabouts);
std::string to_payload(const Trail& trail);
Whereabouts whereabouts_from(std::string_view payload);
Trail trail_from(std::string_view payload);

/// Of two camps of ranks or more: those that differ from most ranks; all where no camp is the largest.
LOCKSTEP_API std::vector<int> outvoted(std::vector<std::vector<int>> camps);

/// Names all sides, and the ranks that differ from most of the others. Those that have come to `meeting` have
/// not announced the same. Ranks that know the same announcements come to the same words.
Verdict disagreement_in(const Meeting& meeting, const Meetings& meetings, const Words& words);

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

/// One round of questions. Ranks that wait for others themselves are not to blame: those are asked, too.
/// Not for several threads at once.
class Inquiry {
 public:
  /// Asks `ranks`.
  Inquiry(Diagnosis& diagnosis, std::span<const int> ranks);

  /// Whether all that were asked have answered or been silent for long. Asks further ranks as answers arrive.
  bool is_over();

  /// Ranks that have not answered for long: stopped, or out of reach.
  std::vector<int> silent() const;

  /// The silent ranks; if there are none, those that are in no collective; if there are none, either,
  /// `others`.
  std::vector<int> culprits(std::span<const int> others) const;

  /// "rank 1 is outside of collectives; rank 2 does not answer ...", of all that were asked, by rank: ranks
  /// that ask at the same time say the same.
  std::string states() const;

 private:
  void ask(std::span<const int> ranks);
  bool has_answered(int rank) const;
  Whereabouts whereabouts(int rank) const;
  bool is_silent(int rank) const;

  Diagnosis& diagnosis_;
  Peer::TimePoint asked_at_;
  std::vector<int> asked_;  // this rank among them where others wait for it
};

}  // namespace lockstep::rendezvous
