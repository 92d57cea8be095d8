#include "offload/swap_layout.h"

#include <algorithm>
#include <utility>

#include "offload/aligned_buffer.h"

namespace lockstep::offload {

std::size_t SwapLayout::add(std::span<const std::uint64_t> part_bytes) {
  SwapRegion region;
  region.offset = bytes_;
  for (const auto bytes : part_bytes) {
    region.parts.push_back({.offset = region.bytes, .bytes = bytes});
    region.bytes += aligned(bytes);
  }
  bytes_ += region.bytes;
  regions_.push_back(std::move(region));
  return regions_.size() - 1;
}

std::uint64_t SwapLayout::largest() const {
  std::uint64_t most = 0;
  for (const SwapRegion& region : regions_) most = std::max(most, region.bytes);
  return most;
}

}  // namespace lockstep::offload
