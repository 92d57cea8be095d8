// Who is to blame when a deadline has passed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "rendezvous/diagnosis.h"

namespace lockstep::rendezvous {

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
