// A lane: operations of a group that must keep their order among each other.
//
// The collectives of a group share one lane. Messages do not use it: two ranks that each send first and
// receive then would wait for each other for ever. Each (other rank, direction, tag) has a lane of its
// own, which is the order that Gloo keeps, too.
#pragma once

#include <atomic>
#include <cstdint>
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
  ProgressQueue queue;
  std::string partner = {};                    ///< " to rank 2"; empty for collectives
  std::atomic<std::uint64_t> sequence{0};      ///< of the operation that began last, from 1
  std::atomic<const char*> activity{nullptr};  ///< name of the operation under way
};

/// The lanes of messages, made when first used.
class MessageLanes {
 public:
  explicit MessageLanes(GroupIdentity identity) : identity_(std::move(identity)) {}

  /// The lane of `message`; it keeps its place.
  const std::shared_ptr<Lane>& of(const Collective& message);

  /// Those made so far.
  std::vector<std::shared_ptr<Lane>> all() const;

  /// Lanes that are made from now on are closed, for `reason`.
  void close(std::exception_ptr reason);

 private:
  using Key = std::tuple<int, CollectiveKind, int>;  // the other rank, direction, tag

  std::shared_ptr<Lane> make_lane(const Collective& message) const;

  GroupIdentity identity_;
  mutable std::mutex mutex_;  // guards all below
  std::map<Key, std::shared_ptr<Lane>> lanes_;
  std::exception_ptr closed_;
};

}  // namespace lockstep::detail
