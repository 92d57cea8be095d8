// A shard in 16 bits beside the one in float32, where operators see 16 bits: what gathers start from.
//
// A step of lockstep's optimizers writes it along with the shard. What was changed otherwise, by the count of
// versions or because somebody says so, is converted before the next gather.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "optim/pieces.h"
#include "parallel/sharded/shard_layout.h"
#include "parallel/sharded/shard_mesh.h"

namespace lockstep::detail {

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

}  // namespace lockstep::detail
