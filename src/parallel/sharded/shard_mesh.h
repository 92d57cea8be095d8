// The ranks, as a grid: along one axis parameters are cut, along the other they are copied.
#pragma once

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// Groups of this rank. Neighbours in the job shard together. Parameters and gradients travel in groups of
/// their own, so that neither waits for the other.
struct ShardMesh {
  Communicator gather = {};     ///< the ranks that hold the shards of one copy
  Communicator reduce = {};     ///< the same ranks
  Communicator replicate = {};  ///< the ranks that hold the same shard
  int world_size = 1;

  int shards() const { return gather.size(); }
  int shard() const { return gather.rank(); }
};

/// `shards` divides the number of ranks of `comm`. Collective, blocking.
ShardMesh make_shard_mesh(const Communicator& comm, int shards);

}  // namespace lockstep::detail
