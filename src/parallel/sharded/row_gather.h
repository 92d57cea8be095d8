// How the row of a FlatParameter comes together: as it is or in 8 bits (qwZ), from all ranks that hold shards
// or, what they have seen already, from the neighbours (hpZ).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

#include "optim/pieces.h"
#include "parallel/sharded/quantized_record.h"
#include "parallel/sharded/shard_layout.h"
#include "parallel/sharded/shard_memory.h"

namespace lockstep::detail {

// A shard in 16 bits beside the one in float32, where operators see 16 bits: what gathers start from.
//
// A step of lockstep's optimizers writes it along with the shard. What was changed otherwise, by the count of
// versions or because somebody says so, is converted before the next gather.

/// Whether a shard in `master` of what is computed in `computed` has one: not where parameters never change,
/// or travel in another form or not at all.
inline bool has_narrow_shard(at::ScalarType master, at::ScalarType computed, bool is_trained,
                             bool is_quantized, const ShardMesh& mesh) {
  const bool is_narrower = master == at::kFloat && c10::elementSize(computed) == 2;
  return is_trained && is_narrower && mesh.gather.size() > 1 && !is_quantized;
}

class NarrowShard {
 public:
  /// In `elements`, of a shard with `pieces`, which lie at `places` in it.
  NarrowShard(at::Tensor elements, std::span<const at::Tensor> pieces, std::span<const ShardPiece> places);

  /// That of piece `i`, for optimizers.
  const std::shared_ptr<NarrowCopy>& copy(std::size_t i) const { return parts_[i].copy; }

  /// Piece `i` is another tensor from now on, with the same elements, whose optimizer writes to `copy`, if to
  /// any: that takes the place of copy(i).
  void take_over(std::size_t i, const at::Tensor& piece, const std::shared_ptr<NarrowCopy>& copy);

  /// What is not known to be the shard's is converted. The whole shard in 16 bits, until the next call.
  const at::Tensor& current();

  /// The shard may have changed, but for what steps have written since the last time.
  void forget_unless_written();
  /// The shard has changed.
  void forget();

  std::int64_t bytes() const { return static_cast<std::int64_t>(elements_.nbytes()); }

 private:
  struct Part {
    at::Tensor piece;
    std::shared_ptr<NarrowCopy> copy;
    std::optional<std::uint32_t> current_of = {};  // the version of the piece that it is a copy of
  };

  at::Tensor elements_;
  std::vector<Part> parts_;
};

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
  void start_from_host(MemoryPool& pool, const at::Tensor& shard, std::int64_t number);
  at::Tensor part_on_host(const at::Tensor& shard) const;
  void wait();
  void land(MemoryPool& pool);
  at::Tensor own_slice() const;

  const ShardMesh& mesh_;
  ShardMemory& memory_;
  RecordFormat format_;  // of a shard, where it is quantised
  at::ScalarType dtype_;
  bool is_quantized_;
  at::Tensor secondary_;  // undefined where neighbours keep nothing
  bool has_secondary_ = false;
  NarrowShard* narrow_ = nullptr;

  at::Tensor row_, travelling_, part_;  // while gathering
  Work work_;
  std::shared_ptr<c10::Event> copied_;  // from the host to the row, without a collective
};

}  // namespace lockstep::detail
