// Where shards, their gradients and gathered rows lie: in memory that is used again, or in files that are
// mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

#include "optim/swapped_tiles.h"

namespace lockstep::detail {

/// Keeps what is given back, up to the largest amount that was in use at once since forget_peak(). Not
/// thread-safe.
class MemoryPool {
 public:
  explicit MemoryPool(at::Device device) : device_(device) {}

  /// A flat tensor; its contents are what they are. On a device: for what is ordered by the current stream.
  at::Tensor take(std::int64_t elements, at::ScalarType dtype);
  /// Takes back what take() gave; nobody may use it any more.
  void give(at::Tensor buffer);

  /// What was needed until now says nothing about what will be: keeps nothing of it.
  void forget_peak();

  /// Most that was in use at once, ever.
  std::int64_t peak_bytes() const { return peak_; }
  /// In use, or kept for the next use.
  std::int64_t bytes() const { return in_use_ + kept_; }

 private:
  at::Device device_;
  std::vector<at::Tensor> free_;
  std::int64_t in_use_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t limit_ = 0;  // of in_use_ and kept_ together
  std::int64_t kept_ = 0;   // bytes of free_
};

/// What `offload` comes to on this rank: makes the folder. @throws ConfigError naming option and directory
std::shared_ptr<const StateSwap> make_swap(const DiskOffload& offload, int rank);

/// How many of `ranks` keep files on the file system of `directory`. Collective, blocking.
int ranks_on_disk(const Communicator& ranks, const std::filesystem::path& directory);

class ShardMemory {
 public:
  /// In files of `swap`, or in memory of `device` without one.
  ShardMemory(at::Device device, std::shared_ptr<const StateSwap> swap)
      : device_(device), swap_(std::move(swap)) {}

  at::Device device() const { return device_; }

  bool is_on_disk() const { return swap_ != nullptr; }
  /// A flat tensor of zeros. Its file is removed with it. @throws IoError where the disk has no room
  at::Tensor zeros(std::int64_t elements, at::ScalarType dtype);

 private:
  at::Device device_;
  std::shared_ptr<const StateSwap> swap_;
  int files_ = 0;
};

}  // namespace lockstep::detail
