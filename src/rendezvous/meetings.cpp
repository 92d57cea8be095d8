#include "rendezvous/meetings.h"

#include <algorithm>
#include <iterator>

namespace lockstep::rendezvous {

using std::chrono::steady_clock;

bool MeetingUnderWay::is_stuck() const {
  if (!meeting->caller) return false;
  const auto after = meeting->caller->is_stuck_after();
  return after && steady_clock::now() - begun_at >= *after;
}

void Meetings::begin(const Meeting& meeting) {
  under_way_.push_back({.meeting = &meeting, .number = ++begun_, .begun_at = steady_clock::now()});
}

void Meetings::end(const Meeting& meeting) {
  std::erase_if(under_way_, [&](const auto& each) { return each.meeting == &meeting; });
}

bool Meetings::take_back(std::uint64_t group, int rank) {
  for (auto& each : under_way_) {
    if (each.meeting->announcement.group == group) each.gave_up.push_back(rank);
  }
  return inbox_.drop(group, rank);
}

const MeetingUnderWay* Meetings::stuck() const {
  const auto found = std::ranges::find_if(under_way_, &MeetingUnderWay::is_stuck);
  return found == under_way_.end() ? nullptr : &*found;
}

const Announcement* Meetings::announced(const Meeting& meeting, int member) const {
  if (member == rank_) return &meeting.announcement;
  const auto* entry = inbox_.front(meeting.announcement.group, member);
  return entry ? &entry->announcement : nullptr;
}

bool Meetings::is_complete(const Meeting& meeting) const {
  return std::ranges::all_of(meeting.members,
                             [&](int member) { return announced(meeting, member) != nullptr; });
}

bool Meetings::is_unanimous(const Meeting& meeting) const {
  return std::ranges::all_of(meeting.members, [&](int member) {
    const auto* theirs = announced(meeting, member);
    return !theirs || *theirs == meeting.announcement;
  });
}

std::vector<int> Meetings::missing_from(const Meeting& meeting) const {
  std::vector<int> missing;
  std::ranges::copy_if(meeting.members, std::back_inserter(missing),
                       [&](int member) { return !announced(meeting, member); });
  return missing;
}

std::vector<int> Meetings::absent_from(const Meeting& meeting) const {
  const auto missing = missing_from(meeting);
  const auto own = std::ranges::find(under_way_, &meeting, &MeetingUnderWay::meeting);
  auto absent = missing;
  std::erase_if(absent,
                [&](int rank) { return std::ranges::find(own->gave_up, rank) != own->gave_up.end(); });
  return absent.empty() ? missing : absent;
}

int Meetings::first_present(const Meeting& meeting) const {
  int first = rank_;
  for (const int member : meeting.members) {
    if (announced(meeting, member)) first = std::min(first, member);
  }
  return first;
}

// Connections keep the order of messages: who says that it waits has announced what it waits in before, and
// that is here until this rank has met it there.
bool Meetings::is_awaited(std::uint64_t group, int rank) const {
  return inbox_.front(group, rank) != nullptr && std::ranges::none_of(under_way_, [&](const auto& each) {
           return each.meeting->announcement.group == group;
         });
}

}  // namespace lockstep::rendezvous
