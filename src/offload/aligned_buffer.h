// Memory for transfers that go past the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// What offsets, sizes and addresses of transfers are multiples of, in bytes: the largest sector of common
/// disks, and a page.
inline constexpr std::size_t kAlignment = 4096;

/// `bytes`, rounded up to a multiple of kAlignment.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Owns memory that begins at a multiple of kAlignment and is as large; zeros at first. Large ones ask for
/// huge pages and are given back to the system when they go.
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
