#include "parallel/sharded/shard_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <string>

#include <lockstep/torch.h>

#include "base/system.h"
#include "offload/mapped_memory.h"
#include "offload/swap_folder.h"
#include "optim/arena.h"

namespace lockstep::detail {
namespace {

at::Tensor flat_zeros(std::int64_t elements, at::ScalarType dtype, at::Device device) {
  if (device.is_cpu()) return zeros_in_pages(elements, dtype);
  return at::zeros({elements}, at::TensorOptions(device).dtype(dtype));
}

}  // namespace

at::Tensor MemoryPool::take(std::int64_t elements, at::ScalarType dtype) {
  const auto fits = [&](const at::Tensor& buffer) {
    return buffer.numel() == elements && buffer.scalar_type() == dtype;
  };
  const auto found = std::ranges::find_if(free_, fits);
  at::Tensor buffer;
  if (found != free_.end()) {
    buffer = std::move(*found);
    free_.erase(found);
    kept_ -= static_cast<std::int64_t>(buffer.nbytes());
  } else {
    const c10::InferenceMode off(false);
    buffer = flat_zeros(elements, dtype, device_);
  }
  in_use_ += static_cast<std::int64_t>(buffer.nbytes());
  peak_ = std::max(peak_, in_use_);
  limit_ = std::max(limit_, in_use_);
  // Sizes that are asked for no more make room for those that are.
  while (!free_.empty() && in_use_ + kept_ > limit_) {
    kept_ -= static_cast<std::int64_t>(free_.front().nbytes());
    free_.erase(free_.begin());
  }
  return buffer;
}

void MemoryPool::give(at::Tensor buffer) {
  const auto bytes = static_cast<std::int64_t>(buffer.nbytes());
  in_use_ -= bytes;
  kept_ += bytes;
  free_.push_back(std::move(buffer));
}

void MemoryPool::forget_peak() {
  free_.clear();
  kept_ = 0;
  limit_ = in_use_;
}

std::shared_ptr<const StateSwap> make_swap(const DiskOffload& offload, int rank) {
  const offload::SwapOptions options{.block_size = offload.block_size,
                                     .queue_depth = offload.queue_depth,
                                     .single_submit = offload.single_submit,
                                     .overlap_events = offload.overlap_events};
  offload::validate(options);
  return_freed_memory();  // who offloads has no memory to spare
  if (rank == 0) offload::warn_of_tmpfs(offload.directory, offload.option);
  auto folder = std::make_shared<const offload::SwapFolder>(
      offload::SwapFolderOptions{.directory = offload.directory, .rank = rank, .option = offload.option});
  return std::make_shared<const StateSwap>(StateSwap{.folder = std::move(folder),
                                                     .options = options,
                                                     .tile_elements = offload.tile_elements,
                                                     .buffers = offload.buffers,
                                                     .share = offload.optimizer_share});
}

int ranks_on_disk(const Communicator& ranks, const std::filesystem::path& directory) {
  struct stat status {};
  const bool is_known = ::stat(directory.c_str(), &status) == 0;
  const auto mine = host_name() + " " + (is_known ? std::to_string(status.st_dev) : directory.string());
  const auto all = ranks.all_gather_bytes(mine);
  return static_cast<int>(std::ranges::count(all, mine));
}

at::Tensor ShardMemory::zeros(std::int64_t elements, at::ScalarType dtype) {
  if (!swap_ || elements == 0) return flat_zeros(elements, dtype, device_);
  const auto bytes = static_cast<std::uint64_t>(elements) * c10::elementSize(dtype);
  const auto memory =
      std::make_shared<offload::MappedMemory>(*swap_->folder, "shard_" + std::to_string(files_++), bytes);
  return at::from_blob(
      memory->bytes().data(), {elements}, [memory](void*) {}, dtype);
}

}  // namespace lockstep::detail
