#include "parallel/sharded/shard_mesh.h"

namespace lockstep::detail {
namespace {

Communicator group_of(const Communicator& comm, int color, int size) {
  return size == 1 ? Communicator() : comm.split(color).value();
}

std::int64_t sent_in(const Communicator& group) { return static_cast<std::int64_t>(group.bytes_sent()); }

// Where they are all that there are, they are no neighbours.
Communicator near_group(const Communicator& comm, int neighbours, int shards) {
  return group_of(comm, comm.rank() / neighbours, neighbours == shards ? 1 : neighbours);
}

}  // namespace

ShardMesh make_shard_mesh(const Communicator& comm, int shards, Neighbours near) {
  const int copies = comm.size() / shards;
  const int block = comm.rank() / shards;
  const bool has_far = near.reduce > 1 && near.reduce < shards;
  const int place = block * near.reduce + comm.rank() % near.reduce;
  return {.gather = group_of(comm, block, shards),
          .gather_near = near_group(comm, near.gather, shards),
          .reduce = group_of(comm, block, shards),
          .reduce_near = near_group(comm, near.reduce, shards),
          .reduce_far = group_of(comm, place, has_far ? shards / near.reduce : 1),
          .replicate = group_of(comm, comm.rank() % shards, copies)};
}

void ShardMesh::count_sent(ShardedStats& stats) const {
  stats.gather_bytes_sent += sent_in(gather);
  stats.secondary_gather_bytes_sent += sent_in(gather_near);
  stats.far_reduction_bytes_sent += sent_in(reduce_far);
  for (const auto* group : {&gather, &gather_near, &reduce, &reduce_near, &reduce_far, &replicate})
    stats.bytes_sent += sent_in(*group);
}

}  // namespace lockstep::detail
