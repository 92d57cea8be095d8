// Why a meeting does not take place, and which ranks are to blame: ranks that wait ask the missing ones.
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
#include "rendezvous/message.h"
#include "rendezvous/peer_links.h"

namespace lockstep::rendezvous {

enum class Doing {
  kElse,     ///< something in which other ranks have no part
  kWaiting,  ///< it waits for other ranks in a meeting
  kWorking   ///< all ranks of the meeting have arrived, and it runs what they met for
};

/// What a rank is doing, as it reports to others.
struct Whereabouts {
  Doing doing = Doing::kElse;
  std::vector<int> missing = {};  ///< kWaiting: ranks that it waits for
  std::string text = {};          ///< what it waits for, or runs, as text; kElse: where it was last
};

/// A rank that is stuck in its `number`-th meeting, in `group`; `text` describes the meeting.
struct Hop {
  int rank = 0;
  std::uint64_t number = 0;
  std::uint64_t group = 0;
  std::string text = {};
};

/// A chain of ranks that wait for each other: the first hop waits for the rank of the second one, and so on;
/// the last one waits for the receiver of the trail. Each rank occurs once.
struct Trail {
  std::uint64_t number = 0;  ///< among the trails that began with this first hop
  std::vector<Hop> hops = {};
};

std::string to_payload(const Whereabouts& whereabouts);
std::string to_payload(const Trail& trail);
Whereabouts whereabouts_from(std::string_view payload);
Trail trail_from(std::string_view payload);

/// The ranks of `camps`, sets of ranks with equal announcements, that differ from the largest camp; all ranks
/// where no camp is the largest.
LOCKSTEP_API std::vector<int> outvoted(std::vector<std::vector<int>> camps);

/// The verdict on ranks that have come to `meeting` with different announcements: it names all sides, and the
/// ranks that differ from most others. Ranks that know the same announcements produce the same text.
Verdict disagreement_in(const Meeting& meeting, const Meetings& meetings, const Words& words);

/// The state of another rank, as far as it is known.
struct Peer {
  using TimePoint = std::chrono::steady_clock::time_point;

  bool has_left = false;         ///< said goodbye to the job
  int unanswered = 0;            ///< questions
  TimePoint heard_at = {};       ///< when it answered last
  TimePoint quiet_since = {};    ///< the time of its last answer or message, where `unanswered` is not 0
  Whereabouts whereabouts = {};  ///< its last answer
};

/// Not thread-safe.
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

  /// Asks the other ranks among `ranks` that have not left what they are doing. Answers are passed to
  /// note_answer().
  void ask(std::span<const int> ranks);
  void note_answer(int rank, Whereabouts whereabouts);

  /// What this rank is doing.
  Whereabouts own() const;
  /// Sends own() to rank `asker`.
  void answer(int asker);
  /// Forwards a trail that arrived with a question. Returns the verdict of a deadlock if the trail is a
  /// circle.
  std::optional<Verdict> follow(Trail trail);

 private:
  void send_question(int rank, const std::string& trail);

  int rank_;
  PeerLinks& links_;
  Meetings& meetings_;
  const Words& words_;
  std::vector<Peer> peers_;                 // by rank
  std::vector<std::uint64_t> last_trails_;  // numbers of forwarded trails, by first rank
  std::uint64_t trails_ = 0;                // number of trails that began here
};

/// One round of questions. Ranks that wait for others are not to blame, so those others are asked, too. Not
/// thread-safe.
class Inquiry {
 public:
  /// Starts by asking `ranks`.
  Inquiry(Diagnosis& diagnosis, std::span<const int> ranks);

  /// Whether all ranks that were asked have answered or been silent for too long. Asks further ranks as
  /// answers arrive.
  bool is_over();

  /// The ranks that have not answered for too long: stopped, or unreachable.
  std::vector<int> silent() const;

  /// The silent ranks; if there are none, the ranks that are in no collective; if there are none, either,
  /// `others`.
  std::vector<int> ranks_to_blame(std::span<const int> others) const;

  /// "rank 1 is outside of collectives, after all_reduce seq 5, in backward of step 12", for each of `ranks`.
  std::string places_of(std::span<const int> ranks) const;

  /// "rank 1 is outside of collectives; rank 2 does not answer ...", for all ranks that were asked, by rank,
  /// so that ranks that ask at the same time produce the same text.
  std::string states() const;

 private:
  void ask(std::span<const int> ranks);
  bool has_answered(int rank) const;
  Whereabouts whereabouts(int rank) const;
  bool is_silent(int rank) const;
  std::string state_of(int rank) const;

  Diagnosis& diagnosis_;
  Peer::TimePoint asked_at_;
  std::vector<int> asked_;  // this rank among them where others wait for it
};

}  // namespace lockstep::rendezvous
