// Aligned memory for transfers that bypass the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// Offsets, sizes and addresses of transfers are multiples of this, in bytes: the largest sector of common
/// disks, and a page.
inline constexpr std::size_t kAlignment = 4096;

/// `bytes`, rounded up to a multiple of kAlignment.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Owns memory whose address and size are multiples of kAlignment, and which is zero at first. Large buffers
/// use huge pages where possible, and are returned to the system when they are destroyed.
class LOCKSTEP_API AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// `bytes` is rounded up. @throws std::bad_alloc
  explicit AlignedBuffer(std::uint64_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer();

  /// Valid as long as this object, also after a move of it.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace lockstep::offload
