// Memory of devices: one file, mapped twice. Tensors hold addresses of a mapping that faults when the host
// touches it; kernels work on the same bytes at the other one. The allocator is a caching one in the order of
// streams, as CUDA's: a block that is freed serves its own stream again at once; where record_stream() named
// others, when these are over for its stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

#include "sim/races.h"

namespace lockstep::sim {

constexpr int kHostDevice = -1;

class AddressSpace {
 public:
  AddressSpace() = default;
  explicit AddressSpace(std::size_t bytes);

  std::uintptr_t begin() const { return faulting_; }
  bool holds(const void* address) const;
  /// Where a kernel finds what `address` stands for.
  char* for_kernels(const void* address) const;

 private:
  std::uintptr_t faulting_ = 0;
  std::uintptr_t usable_ = 0;
  std::size_t bytes_ = 0;
};

/// A piece of a device's memory, which is never given back; or of pinned memory.
struct Block {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  int device = 0;
  int stream = 0;  ///< that it was allocated for
  int graph = 0;   ///< whose captured work it belongs to, or 0
  bool is_live = true;
  std::set<int> other_streams = {};                           ///< record_stream()
  std::vector<std::pair<int, std::uint64_t>> last_uses = {};  ///< of other streams, when it was freed
  AccessHistory history = {};
};

/// The blocks of devices that nobody holds.
struct FreeBlocks {
  using Sizes = std::set<std::pair<std::size_t, std::uintptr_t>>;  ///< bytes and begin
  std::map<std::pair<int, int>, Sizes> by_place;                   ///< by stream and graph
};

struct DeviceMemory {
  std::size_t reserved_bytes = 0;
  std::size_t allocated_bytes = 0;
  std::size_t peak_allocated_bytes = 0;
};

/// Of the current stream of `device`. What is not written before it is read is NaN, or -1.
/// @throws c10::OutOfMemoryError
void* allocate(std::size_t bytes, int device);
void free_block(void* memory);
void record_stream(void* memory, int stream);

/// The memory of a graph that is over for good serves everyone again. With Runtime::mutex held.
void release_graph_memory(int graph);

/// The allocator of tensors.
c10::DeviceAllocator& device_allocator();

}  // namespace lockstep::sim
