// Streams the regions of a swap file through memory, a few at a time.
//
// Regions come in order. While one is worked on, the next ones are read and the one before is written back:
// with three buffers, region i+1 is read and i-1 written during step i. With two, i+1 is read as soon as i-1
// is written; with one, nothing is done ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <lockstep/base/export.h>

#include "offload/io_engine.h"
#include "offload/swap_file.h"

namespace lockstep::offload {

// The layout of tensors in a swap file.

/// Contiguous bytes: a tensor, or its moments.
struct SwapPart {
  std::uint64_t offset = 0;  ///< in its region; a multiple of kAlignment
  std::uint64_t bytes = 0;   ///< any number
};

/// Parts that are in memory at the same time, such as a parameter and its moments.
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
  /// The size of all regions.
  std::uint64_t bytes() const { return bytes_; }
  /// Of the largest region.
  std::uint64_t largest() const;

 private:
  std::vector<SwapRegion> regions_;
  std::uint64_t bytes_ = 0;
};

/// What a pass does with each region.
enum class SwapPass {
  kUpdate,  ///< read, changed in place, written back
  kRead,    ///< read
  kFill     ///< written, without being read before; its bytes are anything at first
};

/// Owns the buffers, each as large as the largest region.
class LOCKSTEP_API SwapStream {
 public:
  /// Called with the number of a region and its parts, which it may keep until it returns.
  using Step = std::function<void(std::size_t region, std::span<const std::span<std::byte>> parts)>;

  /// `file` must outlive this object, and hold the layout's bytes. `buffers`: at least 1.
  /// @throws Error when the file is too small, or there are no buffers; std::bad_alloc
  SwapStream(SwapFile& file, SwapLayout layout, std::size_t buffers = 3);

  /// Calls `step` for each region, on this thread. Blocking. Nothing is under way when it returns, or throws.
  /// After an exception of `step`, regions before that one are written and the others as they were before.
  /// @throws IoError naming file, offset, bytes and the system's reason; what `step` throws
  void run(const Step& step, SwapPass pass = SwapPass::kUpdate);

  const SwapLayout& layout() const { return layout_; }

 private:
  struct Slot {
    AlignedBuffer buffer;
    Transfer transfer;  // the last one of that buffer
  };

  Slot& slot_of(std::size_t region) { return slots_[region % slots_.size()]; }
  std::span<std::byte> bytes_of(std::size_t region);
  std::size_t regions_ahead(SwapPass pass) const;
  void begin_read(std::size_t region);
  void call(const Step& step, std::size_t region);
  void walk(const Step& step, SwapPass pass);
  void drain();

  SwapFile& file_;
  SwapLayout layout_;
  std::vector<Slot> slots_;
  std::vector<std::span<std::byte>> parts_;  // of the region that is worked on
};

}  // namespace lockstep::offload
