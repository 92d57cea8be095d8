#include "parallel/sharded/shard_mesh.h"

namespace lockstep::detail {
namespace {

Communicator group_of(const Communicator& comm, int color, int size) {
  return size == 1 ? Communicator() : comm.split(color).value();
}

}  // namespace

ShardMesh make_shard_mesh(const Communicator& comm, int shards) {
  const int copies = comm.size() / shards;
  const int block = comm.rank() / shards;
  return {.gather = group_of(comm, block, shards),
          .reduce = group_of(comm, block, shards),
          .replicate = group_of(comm, comm.rank() % shards, copies),
          .world_size = comm.size()};
}

}  // namespace lockstep::detail
