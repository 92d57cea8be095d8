// A group of ranks: who is in it, and what it does. The private side of Communicator.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <c10/core/DeviceType.h>

#include <lockstep/base/export.h>

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// Which group this is, and who is in it. The same on all members but for `rank`.
struct GroupIdentity {
  std::uint64_t id = 0;                 ///< tells the groups of a job apart
  int rank = 0;                         ///< this rank within the group
  std::vector<int> global_ranks = {0};  ///< the members, by their rank in the job
  std::string name = {};                ///< "{0, 2}"; empty for the whole job
  int number = 0;  ///< among the sub-groups of its parent, from 1, those of others included

  int size() const { return static_cast<int>(global_ranks.size()); }
  int global_rank() const { return global_rank(rank); }
  int global_rank(int member) const { return global_ranks.at(static_cast<std::size_t>(member)); }
};

/// All ranks of a job.
LOCKSTEP_API GroupIdentity identity_of_job(int rank, int world_size, std::uint64_t id);

/// The `number`-th sub-group of `parent`, whose rank i is the parent's rank members[i]; this rank is one of
/// them.
GroupIdentity identity_of_subgroup(const GroupIdentity& parent, std::span<const int> members, int number);

/// Tells the messages of `tag` from global rank `source` to `destination` apart from all others.
std::uint64_t id_of_messages(const GroupIdentity& group, int source, int destination, int tag);

/// Where the monitored barriers of `group` meet.
std::uint64_t id_of_monitored_barrier(const GroupIdentity& group);

/// "{0, 2}"; of many ranks only the first ones.
std::string list_of(std::span<const int> ranks);

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
  /// Whether a collective that is started may get on while its caller computes. Not where the ranks of one
  /// machine take up all processors: another thread would only get in the way of who computes.
  virtual bool overlaps() const { return true; }
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
