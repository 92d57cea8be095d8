#include "parallel/sharded/shard_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>

#include <c10/core/Event.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/torch.h>

#include "base/system.h"
#include "device/step_recording.h"
#include "offload/mapped_memory.h"
#include "offload/swap_folder.h"
#include "optim/state_memory.h"

namespace lockstep::detail {
namespace {

at::Tensor flat_zeros(std::int64_t elements, at::ScalarType dtype, at::Device device) {
  if (device.is_cpu()) return zeros_in_pages(elements, dtype);
  return at::zeros({elements}, at::TensorOptions(device).dtype(dtype));
}

// Buffers alike that other streams still use, before one of them is waited for.
constexpr std::ptrdiff_t kMostBusy = 2;

at::TensorOptions page_locked(at::ScalarType dtype) {
  return at::TensorOptions(at::kCPU).dtype(dtype).pinned_memory(true);
}

}  // namespace

at::Tensor MemoryPool::take(std::int64_t elements, at::ScalarType dtype) {
  const auto fits = [&](const Free& free) {
    return free.buffer.numel() == elements && free.buffer.scalar_type() == dtype;
  };
  const auto is_idle = [&](const Free& free) { return fits(free) && !free.last_use; };
  auto found = std::ranges::find_if(free_, is_idle);
  if (found == free_.end() && std::ranges::count_if(free_, fits) >= kMostBusy)
    found = std::ranges::find_if(free_, fits);  // the first that was given back
  at::Tensor buffer;
  if (found != free_.end()) {
    buffer = leave(std::move(*found));
    free_.erase(found);
    kept_ -= static_cast<std::int64_t>(buffer.nbytes());
  } else {
    const c10::InferenceMode off(false);
    buffer = flat_zeros(elements, dtype, device_);
  }
  in_use_ += static_cast<std::int64_t>(buffer.nbytes());
  peak_ = std::max(peak_, in_use_);
  std::int64_t busy = 0;
  for (const auto& free : free_) busy += free.last_use ? static_cast<std::int64_t>(free.buffer.nbytes()) : 0;
  limit_ = std::max(limit_, in_use_ + busy);
  // Sizes that are asked for no more make room for those that are.
  while (!free_.empty() && in_use_ + kept_ > limit_) {
    kept_ -= static_cast<std::int64_t>(free_.front().buffer.nbytes());
    leave(std::move(free_.front()));
    free_.erase(free_.begin());
  }
  return buffer;
}

// Also where it goes to LibTorch's allocator, which knows the current stream's uses alone.
at::Tensor MemoryPool::leave(Free free) const {
  if (free.last_use) free.last_use->block(current_stream(device_));
  return std::move(free.buffer);
}

void MemoryPool::forget_uses() {
  for (auto& free : free_) free.last_use.reset();
}

void MemoryPool::give(at::Tensor buffer, std::shared_ptr<c10::Event> last_use) {
  const auto bytes = static_cast<std::int64_t>(buffer.nbytes());
  in_use_ -= bytes;
  kept_ += bytes;
  free_.push_back({.buffer = std::move(buffer), .last_use = std::move(last_use)});
}

void MemoryPool::forget_peak() {
  for (auto& free : std::exchange(free_, {})) leave(std::move(free));
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

at::Tensor ShardMemory::row_zeros(std::int64_t elements, at::ScalarType dtype) const {
  return flat_zeros(elements, dtype, device_);
}

// The host's part of them would be of the recorded step alone.
c10::Stream ShardMemory::begin_copies() const {
  refuse_in_recording("a step whose parameters are offloaded to the CPU");
  const auto stream = offload_stream(device_);
  order_streams(current_stream(device_), stream);
  return stream;
}

std::shared_ptr<c10::Event> ShardMemory::mark_copies() const {
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(offload_stream(device_));
  return event;
}

// Other types are converted on the host: a copy that converts would wait.
void ShardMemory::copy_to_device(const at::Tensor& shard, const at::Tensor& to) {
  if (staging_) return staging_->to_device(shard, to);
  is_awaited_ = true;
  auto from = shard;
  if (shard.scalar_type() != to.scalar_type()) {
    from = at::empty(shard.sizes(), page_locked(to.scalar_type()));
    from.copy_(shard);
  }
  to.copy_(from, /*non_blocking=*/true);
}

void ShardMemory::copy_to_shard(const at::Tensor& from, const at::Tensor& shard) {
  if (from.numel() == 0) return;
  is_awaited_ = true;
  if (staging_) return staging_->to_host(from, shard);
  shard.copy_(from, /*non_blocking=*/true);
}

void ShardMemory::await_device() {
  if (!is_on_host_ || !std::exchange(is_awaited_, false)) return;
  refuse_in_recording("a step of an optimizer that is offloaded to the CPU");
  if (staging_) return staging_->land();
  mark_copies()->synchronize();
}

at::Tensor ShardMemory::zeros(std::int64_t elements, at::ScalarType dtype) {
  if (!swap_ || elements == 0)
    return is_on_host_ ? at::zeros({elements}, page_locked(dtype)) : flat_zeros(elements, dtype, device_);
  const auto bytes = static_cast<std::uint64_t>(elements) * c10::elementSize(dtype);
  const auto memory =
      std::make_shared<offload::MappedMemory>(*swap_->folder, "shard_" + std::to_string(files_++), bytes);
  return at::from_blob(
      memory->bytes().data(), {elements}, [memory](void*) {}, dtype);
}

}  // namespace lockstep::detail
