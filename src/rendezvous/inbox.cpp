#include "rendezvous/inbox.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

void Inbox::push(int rank, Message message) {
  const auto announcement = message.header.announcement;
  auto& group = groups_[announcement.group];
  if (!group.is_over) group.waiting[rank].push_back({announcement, std::move(message.payload)});
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

}  // namespace lockstep::rendezvous
