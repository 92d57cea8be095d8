// Who has announced what, and has not been met yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/message.h"

namespace lockstep::rendezvous {

class Inbox {
 public:
  explicit Inbox(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  struct Entry {
    Announcement announcement;
    std::string payload;
  };

  void push(int rank, Message message) {
    const auto announcement = message.header.announcement;
    queue(announcement.group, rank).push_back({announcement, std::move(message.payload)});
  }

  /// What `rank` announced first in `group` and nobody has taken yet; null if nothing.
  const Entry* front(std::uint64_t group, int rank) {
    const auto& waiting = queue(group, rank);
    return waiting.empty() ? nullptr : &waiting.front();
  }

  void pop(std::uint64_t group, int rank) {
    auto& waiting = queue(group, rank);
    waiting.erase(waiting.begin());
  }

  /// This rank's own latest announcement in a group, by its sequence number.
  void note_own(const Announcement& own) { groups_[own.group].own_sequence = own.sequence; }
  bool has_announced(std::uint64_t group, std::uint64_t sequence) const {
    const auto found = groups_.find(group);
    return found != groups_.end() && found->second.own_sequence >= sequence;
  }

  /// `rank` has left `group`: nothing more comes from it.
  void note_left(std::uint64_t group, int rank) { groups_[group].left.push_back(rank); }
  bool has_left(std::uint64_t group, int rank) const {
    const auto found = groups_.find(group);
    return found != groups_.end() && std::ranges::find(found->second.left, rank) != found->second.left.end();
  }

  /// Frees what is kept for `group`.
  void forget(std::uint64_t group) { groups_.erase(group); }

 private:
  struct GroupEntries {
    std::vector<std::vector<Entry>> by_rank;  // a rank is rarely more than one ahead
    std::vector<int> left;
    std::uint64_t own_sequence = 0;  // sequences are counted from 1
  };

  std::vector<Entry>& queue(std::uint64_t group, int rank) {
    auto& by_rank = groups_[group].by_rank;
    if (by_rank.empty()) by_rank.resize(ranks_);
    return by_rank[static_cast<std::size_t>(rank)];
  }

  std::size_t ranks_;
  std::unordered_map<std::uint64_t, GroupEntries> groups_;
};

}  // namespace lockstep::rendezvous
