// Where the parameters of a unit lie side by side, and how the row is cut into shards.
//
// Two rules make a shard's arithmetic that of the whole: every parameter begins on a cache line of its own,
// and where a shard ends inside a parameter, it ends between two blocks of kGradNormBlock elements, so that
// the norm of the gradients is summed over the same blocks by whoever holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/base/export.h>

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

}  // namespace lockstep::detail
