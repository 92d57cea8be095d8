// How the parameters of a unit lie side by side, how the row is cut into shards, and the ranks, as a grid,
// that hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

namespace lockstep::detail {

/// What lies in a row begins at multiples of this many elements: 64 bytes of a 16-bit type.
inline constexpr std::int64_t kRowAlignment = 32;

/// A run of one parameter's elements in one shard.
struct ShardPiece {
  std::size_t parameter;  ///< its number
  std::int64_t begin;     ///< in the parameter
  std::int64_t count;     ///< elements
  std::int64_t offset;    ///< in the shard
};

/// Counts elements. A value; all ranks compute the same one. Exported for tests.
class LOCKSTEP_API ShardLayout {
 public:
  /// `sizes`: elements of each parameter.
  ShardLayout(std::span<const std::int64_t> sizes, int shards);

  int shards() const { return static_cast<int>(pieces_.size()); }
  std::int64_t shard_elements() const { return shard_elements_; }
  std::int64_t total_elements() const { return shard_elements_ * shards(); }

  /// Where a parameter begins in the whole row.
  std::int64_t offset(std::size_t parameter) const { return offsets_[parameter]; }

  /// What is in a shard: for each parameter one piece, which may be empty, in order.
  std::span<const ShardPiece> pieces(int shard) const { return pieces_[static_cast<std::size_t>(shard)]; }

 private:
  void place(std::span<const std::int64_t> sizes, int shards);
  void cut(std::span<const std::int64_t> sizes, int shards);

  std::int64_t shard_elements_ = 0;
  std::vector<std::int64_t> offsets_;
  std::vector<std::vector<ShardPiece>> pieces_;
};

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
