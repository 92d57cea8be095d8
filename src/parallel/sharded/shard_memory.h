// Where shards and their gradients lie: in memory, or in files that are mapped.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/sharded/disk_offload.h>

#include "optim/state_swap.h"

namespace lockstep::detail {

/// What `offload` comes to on this rank: makes the folder. @throws ConfigError naming option and directory
std::shared_ptr<const StateSwap> make_swap(const DiskOffload& offload, int rank);

/// How many of `ranks` keep files on the file system of `directory`. Collective, blocking.
int ranks_on_disk(const Communicator& ranks, const std::filesystem::path& directory);

class ShardMemory {
 public:
  /// In files of `swap`, or in memory without one.
  explicit ShardMemory(std::shared_ptr<const StateSwap> swap) : swap_(std::move(swap)) {}

  bool is_on_disk() const { return swap_ != nullptr; }
  /// A flat tensor of zeros. Its file is removed with it. @throws IoError where the disk has no room
  at::Tensor zeros(std::int64_t elements, at::ScalarType dtype);

 private:
  std::shared_ptr<const StateSwap> swap_;
  int files_ = 0;
};

}  // namespace lockstep::detail
