// Which group this is, and who is in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// The same on all members but for `rank`.
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

}  // namespace lockstep::detail
