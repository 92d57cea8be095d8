// Where tensors lie in a swap file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// Bytes that lie together: a tensor, or its moments.
struct SwapPart {
  std::uint64_t offset = 0;  ///< in its region; a multiple of kAlignment
  std::uint64_t bytes = 0;   ///< any number
};

/// What is in memory at the same time: a parameter beside its moments, for example.
struct SwapRegion {
  std::uint64_t offset = 0;  ///< in the file; a multiple of kAlignment
  std::uint64_t bytes = 0;   ///< with what aligns its parts; a multiple of kAlignment
  std::vector<SwapPart> parts;
};

/// A row of regions without gaps.
class LOCKSTEP_API SwapLayout {
 public:
  /// Appends a region whose parts have that many bytes each. Gives its number, counted from 0.
  std::size_t add(std::span<const std::uint64_t> part_bytes);

  std::span<const SwapRegion> regions() const { return regions_; }
  /// Of all regions.
  std::uint64_t bytes() const { return bytes_; }
  /// Of the largest region.
  std::uint64_t largest() const;

 private:
  std::vector<SwapRegion> regions_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::offload
