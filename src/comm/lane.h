// A lane: operations of a group that must keep their order among each other.
//
// The collectives of a group share one lane. Messages do not use it: two ranks that each send first and
// receive then would wait for each other for ever. Each (other rank, direction, tag) has a lane of its
// own, which is the order that Gloo keeps, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "comm/collective.h"
#include "comm/group_identity.h"
#include "comm/progress.h"

namespace lockstep::detail {

struct Lane {
  Lane() = default;
  /// That of the collectives of a group.
  explicit Lane(const GroupIdentity& group);
  /// That of `message` and its like.
  Lane(const GroupIdentity& group, const Collective& message);

  ProgressQueue queue;
  std::uint64_t id = 0;           ///< tells the lanes of a job apart; the same on all members
  std::vector<int> members = {};  ///< global ranks that meet in it
  std::string place = {};         ///< " of group {0, 2}", " from rank 0 to rank 2"; the same on all members
  std::string partner = {};       ///< " to rank 2"; empty for collectives
  std::atomic<std::uint64_t> sequence{0};      ///< of the operation that began last, from 1
  std::atomic<std::uint64_t> announced{0};     ///< those that its members agreed on
  std::atomic<bool> is_closing{false};         ///< what waits for peers shall not
  std::atomic<const char*> activity{nullptr};  ///< name of the operation under way
};

/// The lanes of messages, made when first used.
class MessageLanes {
 public:
  using OnNew = std::function<void(const std::shared_ptr<Lane>&)>;
  /// `on_new` is called with each new lane, under a lock.
  explicit MessageLanes(GroupIdentity identity, OnNew on_new = {})
      : identity_(std::move(identity)), on_new_(std::move(on_new)) {}

  /// The lane of `message`; it keeps its place.
  const std::shared_ptr<Lane>& of(const Collective& message);

  /// Those made so far.
  std::vector<std::shared_ptr<Lane>> all() const;

  /// Lanes that are made from now on are closed, for `reason`.
  void close(std::exception_ptr reason);

 private:
  using Key = std::tuple<int, CollectiveKind, int>;  // the other rank, direction, tag

  GroupIdentity identity_;
  OnNew on_new_;
  mutable std::mutex mutex_;  // guards all below
  std::map<Key, std::shared_ptr<Lane>> lanes_;
  std::exception_ptr closed_;
};

}  // namespace lockstep::detail
