// How the row of a FlatParameter comes together: as it is or in 8 bits (qwZ), from all ranks that hold shards
// or, what they have seen already, from the neighbours (hpZ).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

#include "parallel/sharded/memory_pool.h"
#include "parallel/sharded/narrow_shard.h"
#include "parallel/sharded/quantized_record.h"
#include "parallel/sharded/shard_memory.h"
#include "parallel/sharded/shard_mesh.h"

namespace lockstep::detail {

/// What becomes of a row on its way.
struct RowTravel {
  bool is_quantized = false;
  bool has_secondary = false;  ///< neighbours keep it, where the mesh has any
};

/// One gather at a time. What travels is the row itself, or a record for each shard; a neighbour's secondary
/// shard is its part of that, so that it gives the same bits.
class RowGather {
 public:
  /// Of shards of `shard_elements`, seen in `dtype`. A secondary shard lies in `memory`.
  RowGather(const ShardMesh& mesh, std::int64_t shard_elements, at::ScalarType dtype, RowTravel travel,
            ShardMemory& memory);

  /// Begins to fill `row` from all ranks' `shard`, which may be of another type. `number` is the same on all
  /// ranks and names the unit if they disagree. Collective, asynchronous.
  void start(MemoryPool& pool, const at::Tensor& shard, const at::Tensor& row, std::int64_t number);
  /// Waits until the row is filled. Blocking.
  void finish(MemoryPool& pool);
  /// Waits, where a gather is under way that nobody has use for. Blocking.
  void drop(MemoryPool& pool);

  /// Gathers start from `narrow`, which outlives this, instead of the shard.
  void start_from(NarrowShard& narrow) { narrow_ = &narrow; }

  /// Shards have changed: what neighbours keep is outdated.
  void forget() { has_secondary_ = false; }

  /// Whether the next gather asks the neighbours only.
  bool has_secondary() const { return has_secondary_; }
  std::int64_t secondary_bytes() const;

  /// Whether shards travel in 8 bits.
  bool is_quantized() const { return is_quantized_; }
  /// Whether operators see other values than those of a shard of type `dtype`.
  bool changes(at::ScalarType dtype) const { return is_quantized_ || dtype != dtype_; }
  /// The values that they see: of this rank's part of the row.
  at::Tensor as_gathered(const at::Tensor& shard) const;

 private:
  at::Tensor part_of(MemoryPool& pool, const at::Tensor& shard);
  void wait();
  void land(MemoryPool& pool);
  at::Tensor own_slice() const;

  const ShardMesh& mesh_;
  RecordFormat format_;  // of a shard, where it is quantised
  at::ScalarType dtype_;
  bool is_quantized_;
  at::Tensor secondary_;  // undefined where neighbours keep nothing
  bool has_secondary_ = false;
  NarrowShard* narrow_ = nullptr;

  at::Tensor row_, travelling_, part_;  // while gathering
  Work work_;
};

}  // namespace lockstep::detail
