// How the rows of gradients of all ranks become averages, or sums, a chunk of them on each rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

#include "parallel/sharded/shard_layout.h"
#include "parallel/sharded/shard_memory.h"

namespace lockstep::detail {

/// One reduction at a time: start(), go_on(), finish(), or drop() after any of them.
class RowReduction {
 public:
  virtual ~RowReduction() = default;

  /// Takes `row` over, which holds one chunk for each shard and is given back to `pool`; what comes of it
  /// lands in `chunk`. `number` is equal on all ranks and names the unit. Collective, asynchronous.
  virtual void start(MemoryPool& pool, at::Tensor row, at::Tensor chunk, std::int64_t number) = 0;
  /// Begins the second half, if there is one. Blocking for the first. Collective, asynchronous.
  virtual void go_on() = 0;
  /// Waits until the chunk holds what came of them. Blocking.
  virtual void finish(MemoryPool& pool) = 0;
  /// Waits for what is under way, and forgets it and what earlier reductions have left for later ones. Errors
  /// of the group are not told again. Also when none is under way.
  void drop(MemoryPool& pool) noexcept;
  /// Forgets what earlier reductions have left for later ones, such as errors that are made good. Between
  /// reductions.
  virtual void forget_past() {}

 protected:
  /// Memory of the pool until the end.
  at::Tensor hold(at::Tensor buffer);
  /// One of them before the end.
  void give_back(MemoryPool& pool, const at::Tensor& buffer);
  void give_back(MemoryPool& pool);

  /// Memory of the pool is given back: nobody may use it any more.
  virtual void forget_buffers() {}

  at::Tensor chunk_;
  Work work_;

 private:
  std::vector<at::Tensor> held_;
};

/// By a reduce-scatter among the ranks that shard, then an all-reduce among copies. `op`: kAvg or kSum.
std::unique_ptr<RowReduction> plain_reduction(const ShardMesh& mesh, ReduceOp op);

/// What is in a chunk.
struct ChunkShape {
  std::int64_t numbers;  ///< that are quantised
  std::int64_t exact;    ///< float32 in effect; they follow
};

/// In 4 bits, among ranks that shard, without copies (qgZ): an exchange among neighbours, whose sums are
/// exchanged in 4 bits again by those that are far. Sums are float32, in the order of ranks.
std::unique_ptr<RowReduction> quantized_reduction(const ShardMesh& mesh, ChunkShape shape,
                                                  const std::optional<ErrorFeedback>& feedback);

}  // namespace lockstep::detail
