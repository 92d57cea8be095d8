// The meetings that this rank is in, and who has come to them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "rendezvous/inbox.h"
#include "rendezvous/meeting.h"

namespace lockstep::rendezvous {

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
