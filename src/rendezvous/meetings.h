// The meetings that this rank is in, and who has come to them.
#pragma once

#include <utility>
#include <vector>

#include "rendezvous/inbox.h"
#include "rendezvous/meeting.h"

namespace lockstep::rendezvous {

/// Not for several threads at once.
class Meetings {
 public:
  explicit Meetings(int rank, int ranks) : rank_(rank), inbox_(ranks) {}

  Inbox& inbox() { return inbox_; }

  /// Those under way.
  const std::vector<const Meeting*>& under_way() const { return under_way_; }
  void begin(const Meeting& meeting);
  void end(const Meeting& meeting) { std::erase(under_way_, &meeting); }

  /// What `member` announced for `meeting`; null if nothing yet. This rank's own is the meeting's.
  const Announcement* announced(const Meeting& meeting, int member);

  bool is_complete(const Meeting& meeting);
  std::vector<int> missing_from(const Meeting& meeting);

 private:
  int rank_;
  Inbox inbox_;
  std::vector<const Meeting*> under_way_;
};

}  // namespace lockstep::rendezvous
