// Files mapped as memory, which the system may write to disk and drop from memory; and a pool that reuses
// such memory.
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

/// Owns the mapping. It does not count as data of the process (RLIMIT_DATA), and the system can reclaim it
/// under memory pressure (cgroups).
class LOCKSTEP_API MappedMemory {
 public:
  /// Zeros, in a new file without a name, which is removed with this object. Blocking.
  /// @throws IoError with the bytes needed and free where the disk has no room
  MappedMemory(const SwapFolder& folder, std::string_view name, std::uint64_t bytes);
  /// The bytes of `file`, which stay valid when `file` is destroyed. Its transfers bypass the page cache
  /// where they can, accesses by address go through it; the system keeps both consistent, as long as they do
  /// not happen at the same moment. @throws IoError where it cannot be mapped
  explicit MappedMemory(const SwapFile& file);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  /// Valid as long as this object.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// A pool of mapped memory. Thread-safe. Holds at most as many unused bytes as were in use at once.
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
