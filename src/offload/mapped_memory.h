// Bytes of a file that have addresses, memory that the system may write to disk and forget; and a pool that
// uses it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include <lockstep/base/export.h>

#include "offload/swap_file.h"
#include "offload/swap_folder.h"

namespace lockstep::offload {

/// Owns the mapping. It is none of the process's data (RLIMIT_DATA), and under pressure (cgroups) the system
/// gets it back.
class LOCKSTEP_API MappedMemory {
 public:
  /// Zeros, in a file of their own that has no name any more: it goes with this object. Blocking.
  /// @throws IoError with the bytes needed and free where the disk has no room
  MappedMemory(const SwapFolder& folder, std::string_view name, std::uint64_t bytes);
  /// The bytes of `file`, which stay when that goes. Its transfers go past the page cache where they can,
  /// accesses by address through it; the system keeps both in step, as long as nobody uses both at the same
  /// moment. @throws IoError where it cannot be mapped
  explicit MappedMemory(const SwapFile& file);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  /// Valid as long as this object.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// Thread-safe. Keeps at most as many unused bytes as were in use at once.
class LOCKSTEP_API MappedPool {
 public:
  explicit MappedPool(SwapFolder folder) : folder_(std::move(folder)) {}

  /// At least `bytes` of it, with any content, and less than twice as many if they are more than a page.
  /// May block. @throws IoError with the bytes needed and free where the disk has no room
  std::unique_ptr<MappedMemory> take(std::uint64_t bytes);
  void give_back(std::unique_ptr<MappedMemory> memory);

  std::uint64_t bytes_in_use() const;
  std::uint64_t bytes_unused() const;

 private:
  void use(std::uint64_t bytes);

  const SwapFolder folder_;
  mutable std::mutex mutex_;  // guards all below
  std::multimap<std::uint64_t, std::unique_ptr<MappedMemory>> unused_;
  std::uint64_t in_use_ = 0, most_in_use_ = 0, unused_bytes_ = 0, files_ = 0;
};

}  // namespace lockstep::offload
