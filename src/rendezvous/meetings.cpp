#include "rendezvous/meetings.h"

#include <algorithm>
#include <iterator>

namespace lockstep::rendezvous {
namespace {

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

// Whether `member` announces on the board, and not by messages.
bool is_at_board(const Meeting& meeting, int member) {
  return meeting.board && (!meeting.hosts || meeting.hosts->is_here(member));
}

}  // namespace

void Inbox::push(int rank, Message message, bool is_relayed) {
  const auto announcement = message.header.announcement;
  auto& group = groups_[announcement.group];
  if (group.is_over) return;
  auto& waiting = group.waiting[rank];
  const auto same = std::ranges::find_if(waiting, [&](const Entry& entry) {
    return announcement.sequence != 0 && entry.announcement.sequence == announcement.sequence;
  });
  if (same == waiting.end())
    waiting.push_back({announcement, std::move(message.payload), is_relayed});
  else
    same->is_relayed = same->is_relayed && is_relayed;
}

const Inbox::Entry* Inbox::find(std::uint64_t group, int rank, std::uint64_t sequence) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return nullptr;
  const auto waiting = found->second.waiting.find(rank);
  if (waiting == found->second.waiting.end()) return nullptr;
  const auto entry = std::ranges::find(waiting->second, sequence,
                                       [](const Entry& each) { return each.announcement.sequence; });
  return entry == waiting->second.end() ? nullptr : &*entry;
}

void Inbox::drop_up_to(std::uint64_t group, int rank, std::uint64_t sequence) {
  std::erase_if(groups_[group].waiting[rank],
                [&](const Entry& entry) { return entry.announcement.sequence <= sequence; });
}

const Inbox::Entry* Inbox::front(std::uint64_t group, int rank) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return nullptr;
  const auto waiting = found->second.waiting.find(rank);
  if (waiting == found->second.waiting.end() || waiting->second.empty()) return nullptr;
  return &waiting->second.front();
}

void Inbox::pop(std::uint64_t group, int rank) {
  auto& waiting = groups_[group].waiting[rank];
  waiting.erase(waiting.begin());
}

bool Inbox::drop(std::uint64_t group, int rank) {
  if (!front(group, rank)) return false;
  pop(group, rank);
  trim(group);
  return true;
}

void Inbox::note_left(std::uint64_t group, int rank) {
  auto& left = groups_[group].left;
  if (!contains(left, rank)) left.push_back(rank);
  free_if_over(group);
}

bool Inbox::has_left(std::uint64_t group, int rank) const {
  const auto found = groups_.find(group);
  return found != groups_.end() && contains(found->second.left, rank);
}

void Inbox::leave(std::uint64_t group, std::span<const int> members) {
  auto& kept = groups_[group];
  kept.is_over = true;
  kept.waiting.clear();
  kept.others = members.size() - static_cast<std::size_t>(std::ranges::count(members, rank_));
  free_if_over(group);
}

void Inbox::trim(std::uint64_t group) {
  const auto found = groups_.find(group);
  if (found == groups_.end() || found->second.is_over || !found->second.left.empty()) return;
  const bool is_empty =
      std::ranges::all_of(found->second.waiting, [](const auto& each) { return each.second.empty(); });
  if (is_empty) groups_.erase(found);
}

void Inbox::free_if_over(std::uint64_t group) {
  const auto found = groups_.find(group);
  if (found->second.is_over && found->second.left.size() >= found->second.others) groups_.erase(found);
}

using std::chrono::steady_clock;

bool ActiveMeeting::is_stuck() const {
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

const ActiveMeeting* Meetings::stuck() const {
  const auto found = std::ranges::find_if(under_way_, &ActiveMeeting::is_stuck);
  return found == under_way_.end() ? nullptr : &*found;
}

const Announcement* Meetings::announced(const Meeting& meeting, int member) const {
  if (member == rank_) return &meeting.announcement;
  if (is_at_board(meeting, member)) return meeting.board->front(member);
  const auto* entry = received(meeting, member);
  return entry ? &entry->announcement : nullptr;
}

std::string_view Meetings::payload(const Meeting& meeting, int member) const {
  return is_at_board(meeting, member) ? meeting.board->payload(member)
                                      : std::string_view(received(meeting, member)->payload);
}

// Who announces in several ways may be ahead in one of them.
const Inbox::Entry* Meetings::received(const Meeting& meeting, int member) const {
  const auto& [group, sequence, what] = meeting.announcement;
  return meeting.hosts ? inbox_.find(group, member, sequence) : inbox_.front(group, member);
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

bool Meetings::has_given_up(const Meeting& meeting, int member) const {
  const auto own = std::ranges::find(under_way_, &meeting, &ActiveMeeting::meeting);
  return std::ranges::find(own->gave_up, member) != own->gave_up.end();
}

std::vector<int> Meetings::absent_from(const Meeting& meeting) const {
  const auto missing = missing_from(meeting);
  auto absent = missing;
  std::erase_if(absent, [&](int rank) { return has_given_up(meeting, rank); });
  return absent.empty() ? missing : absent;
}

int Meetings::first_present(const Meeting& meeting) const {
  int first = rank_;
  for (const int member : meeting.members) {
    if (announced(meeting, member)) first = std::min(first, member);
  }
  return first;
}

// Connections preserve the order of messages: a rank that reports that it waits has sent its announcement
// before, which is stored here until this rank has met it.
bool Meetings::is_awaited(std::uint64_t group, int rank) const {
  return has_announced(group, rank) && std::ranges::none_of(under_way_, [&](const auto& each) {
           return each.meeting->announcement.group == group;
         });
}

bool Meetings::has_announced(std::uint64_t group, int rank) const {
  const auto found = boards_.find(group);
  const bool is_shown =
      found != boards_.end() && (!found->second.hosts || found->second.hosts->is_here(rank));
  return is_shown ? found->second.board->is_ahead(rank) : inbox_.front(group, rank) != nullptr;
}

void Meetings::use_board(std::uint64_t group, const AnnouncementBoard* board, const Hosts* hosts) {
  if (board)
    boards_[group] = {.board = board, .hosts = hosts};
  else
    boards_.erase(group);
}

}  // namespace lockstep::rendezvous
