// A group of ranks: the private side of Communicator.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <c10/core/DeviceType.h>

#include <lockstep/base/export.h>

#include "comm/collectives/checks.h"
#include "comm/collectives/collective.h"
#include "comm/group/group_identity.h"

namespace lockstep::detail {

/// What a Work waits for.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
  /// Returns when devices are done, too.
  virtual void wait_host() { wait(); }
  virtual bool is_completed() const = 0;
};

/// Tensors of these take part in collectives. Where a group's transport does not move them they are staged
/// (staged_collective.h).
inline constexpr std::array kCollectiveDevices{c10::DeviceType::CPU, c10::DeviceType::CUDA,
                                               c10::DeviceType::PrivateUse1};

/// Ranks that call collectives together. There are two kinds, a rank alone (single_group()) and ranks that a
/// transport connects (connected_group.h), and wrappers of them for tests. Collectives come in checked: dense
/// tensors of devices(), without gradient, of fitting shapes.
class Group {
 public:
  using DeviceTypes = std::span<const c10::DeviceType>;

  Group(GroupIdentity identity, DeviceTypes devices) : identity_(std::move(identity)), devices_(devices) {}
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const GroupIdentity& identity() const { return identity_; }
  /// The device types whose tensors collectives take.
  DeviceTypes devices() const { return devices_; }
  /// Counts the sub-groups that were asked for, from 0: equal on all ranks.
  virtual int next_subgroup() { return subgroups_++; }

  virtual std::string backend() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  virtual std::uint64_t bytes_sent() const = 0;
  virtual std::string activity() const = 0;
  /// Returns when `collective` is done.
  virtual void run(const Collective& collective) = 0;
  /// Returns at once; null where it is done already.
  virtual std::shared_ptr<Pending> start(const Collective& collective) = 0;
  /// Connects `members`, ranks of this group of which this is one. Collective over them, blocking.
  virtual std::shared_ptr<Group> make_subgroup(std::span<const int> members, int number) = 0;
  virtual void close() = 0;

 private:
  GroupIdentity identity_;
  DeviceTypes devices_;
  int subgroups_ = 0;
};

/// This rank, to the checks of a collective.
inline Caller caller_in(const Group& group) {
  return {.rank = group.identity().rank, .size = group.identity().size(), .devices = group.devices()};
}

/// A group whose only rank is this process: a world of one, or a rank that is alone in a sub-group.
/// Collectives copy where they must and never block.
std::shared_ptr<Group> single_group(GroupIdentity identity = {});

}  // namespace lockstep::detail
