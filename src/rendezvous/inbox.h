// Who has announced what, and has not been met yet; and who has left.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/base/export.h>

#include "rendezvous/message.h"

namespace lockstep::rendezvous {

class LOCKSTEP_API Inbox {
 public:
  /// Of rank `rank`.
  explicit Inbox(int rank) : rank_(rank) {}

  struct Entry {
    Announcement announcement;
    std::string payload;
  };

  void push(int rank, Message message);

  /// What `rank` announced first in `group` and nobody has taken yet; null if nothing.
  const Entry* front(std::uint64_t group, int rank) const;

  /// Takes that away; there is one.
  void pop(std::uint64_t group, int rank);
  /// Takes it away if there is one; returns whether there was.
  bool drop(std::uint64_t group, int rank);

  /// `rank` has left `group`: nothing more comes from it.
  void note_left(std::uint64_t group, int rank);
  bool has_left(std::uint64_t group, int rank) const;

  /// This rank has left `group`. What is kept for it is freed when all other `members` have left, too.
  void leave(std::uint64_t group, std::span<const int> members);

  /// Frees what is kept for `group` if nobody waits in it.
  void trim(std::uint64_t group);

  /// Number of groups that something is kept for.
  std::size_t size() const { return groups_.size(); }

 private:
  struct Group {
    std::map<int, std::vector<Entry>> waiting = {};  // by rank, which is rarely more than one ahead
    std::vector<int> left = {};
    bool is_over = false;    // this rank has left, too
    std::size_t others = 0;  // that have left or will
  };

  void free_if_over(std::uint64_t group);

  int rank_;
  std::unordered_map<std::uint64_t, Group> groups_;
};

}  // namespace lockstep::rendezvous
