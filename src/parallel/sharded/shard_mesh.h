// The ranks, as a grid: along one axis parameters are cut, along the other they are copied.
#pragma once

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/sharded/sharded_stats.h>

namespace lockstep::detail {

/// Groups of this rank. Neighbours in the job shard together. Parameters and gradients travel in groups of
/// their own, so that neither waits for the other.
struct ShardMesh {
  Communicator gather = {};       ///< the ranks that hold the shards of one copy
  Communicator gather_near = {};  ///< those of them that keep a secondary copy together
  Communicator reduce = {};       ///< the ranks of `gather`
  Communicator reduce_near = {};  ///< those of them among which quantised gradients are summed first,
  Communicator reduce_far = {};   ///< and those with this rank's place among other neighbours
  Communicator replicate = {};    ///< the ranks that hold the same shard

  int shards() const { return gather.size(); }
  int shard() const { return gather.rank(); }

  /// Adds what this rank sent in these groups.
  void count_sent(ShardedStats& stats) const;
};

/// Numbers of neighbours that do something among themselves first. 1, or all that shard: none do.
struct Neighbours {
  int gather = 1;
  int reduce = 1;
};

/// `shards` divides the number of ranks of `comm`, and neighbours divide the shards. Collective, blocking.
/// Exported for tests.
LOCKSTEP_API ShardMesh make_shard_mesh(const Communicator& comm, int shards, Neighbours near = {});

}  // namespace lockstep::detail
