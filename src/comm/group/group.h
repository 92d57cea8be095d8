// What a backend implements: the private side of Communicator.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <lockstep/comm/communicator.h>

#include "comm/collectives/collective.h"
#include "comm/group/group_identity.h"

namespace lockstep::detail {

/// The far end of a Work.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
  virtual bool is_completed() const = 0;
};

/// A group of ranks. Collectives come in checked: CPU tensors without gradient, of fitting shapes.
class Group {
 public:
  explicit Group(GroupIdentity identity) : identity_(std::move(identity)) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupIdentity& identity() const { return identity_; }
  /// Counts the sub-groups that were asked for, from 0: equal on all ranks.
  virtual int next_subgroup() { return subgroups_++; }

  virtual std::string backend() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  virtual std::uint64_t bytes_sent() const = 0;
  virtual std::string activity() const = 0;
  virtual void run(const Collective& collective) = 0;
  virtual std::shared_ptr<Pending> start(const Collective& collective) = 0;
  /// Connects `members`, ranks of this group of which this is one. Collective over them, blocking.
  virtual std::shared_ptr<Group> make_subgroup(std::span<const int> members, int number) = 0;
  virtual void close() = 0;

 private:
  GroupIdentity identity_;
  int subgroups_ = 0;
};

}  // namespace lockstep::detail
