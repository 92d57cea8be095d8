// Mapped memory that is used again: what is taken and given back in every step costs no files then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <lockstep/base/export.h>

#include "offload/mapped_memory.h"
#include "offload/swap_folder.h"

namespace lockstep::offload {

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
