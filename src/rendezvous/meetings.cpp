#include "rendezvous/meetings.h"

#include <algorithm>
#include <iterator>

namespace lockstep::rendezvous {

void Meetings::begin(const Meeting& meeting) {
  under_way_.push_back(&meeting);
  inbox_.note_own(meeting.announcement);
}

const Announcement* Meetings::announced(const Meeting& meeting, int member) {
  if (member == rank_) return &meeting.announcement;
  const auto* entry = inbox_.front(meeting.announcement.group, member);
  return entry ? &entry->announcement : nullptr;
}

bool Meetings::is_complete(const Meeting& meeting) {
  return std::ranges::all_of(meeting.members,
                             [&](int member) { return announced(meeting, member) != nullptr; });
}

std::vector<int> Meetings::missing_from(const Meeting& meeting) {
  std::vector<int> missing;
  std::ranges::copy_if(meeting.members, std::back_inserter(missing),
                       [&](int member) { return !announced(meeting, member); });
  return missing;
}

}  // namespace lockstep::rendezvous
