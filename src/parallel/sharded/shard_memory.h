// Where shards, their gradients and gathered rows lie: in memory that is used again, in page-locked memory of
// the host, or in files that are mapped, whose bytes reach a device through page-locked memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/parallel/sharded/sharding_plan.h>

#include "device/pinned_staging.h"
#include "optim/state_memory.h"

namespace lockstep::detail {

/// Keeps what is given back, up to the largest amount that was in use at once since forget_peak(). Not
/// thread-safe.
class MemoryPool {
 public:
  explicit MemoryPool(at::Device device) : device_(device) {}

  /// A flat tensor; its contents are what they are. On a device: for what is ordered by the current stream.
  at::Tensor take(std::int64_t elements, at::ScalarType dtype);
  /// Takes back what take() gave; nobody may use it any more. Where `last_use` is given, another stream still
  /// does until then: whoever takes it waits for that on the current stream.
  void give(at::Tensor buffer, std::shared_ptr<c10::Event> last_use = nullptr);

  /// The host has waited for all that other streams did with what was given back.
  void forget_uses();

  /// What was needed until now says nothing about what will be: keeps nothing of it.
  void forget_peak();

  /// Most that was in use at once, ever.
  std::int64_t peak_bytes() const { return peak_; }
  /// In use, or kept for the next use.
  std::int64_t bytes() const { return in_use_ + kept_; }

 private:
  struct Free {
    at::Tensor buffer;
    std::shared_ptr<c10::Event> last_use;
  };

  at::Tensor leave(Free free) const;

  at::Device device_;
  std::vector<Free> free_;
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
  /// Rows are in memory of `device`. Shards are there, too, or `is_on_host`; with `swap` they are in its
  /// files.
  ShardMemory(at::Device device, std::shared_ptr<const StateSwap> swap, bool is_on_host)
      : device_(device),
        swap_(std::move(swap)),
        is_on_host_(is_on_host),
        staging_(swap_ && is_on_host ? std::make_unique<PinnedStaging>() : nullptr) {}

  /// Of rows.
  at::Device device() const { return device_; }

  bool is_on_disk() const { return swap_ != nullptr; }
  /// Whether shards are in page-locked memory of the CPU, or in files, and rows on another device.
  bool is_on_host() const { return is_on_host_; }
  /// A flat tensor of zeros. Its file is removed with it. @throws IoError where the disk has no room
  at::Tensor zeros(std::int64_t elements, at::ScalarType dtype);
  /// The same for what lies beside rows.
  at::Tensor row_zeros(std::int64_t elements, at::ScalarType dtype) const;

  /// Of shards on the host: the stream for their copies, after what was issued to the current one until now.
  /// It works beside what the current one is given next.
  c10::Stream begin_copies() const;
  /// Comes to pass when all copies are done that were issued until now.
  std::shared_ptr<c10::Event> mark_copies() const;
  /// Makes the current stream wait for such an event.
  void order_after(const c10::Event& copied) const { copied.block(current_stream(device_)); }

  /// Copies what lies on the host, such as a shard, to `to`, on the device: in the order of the current
  /// stream, which reads page-locked memory until await_device().
  void copy_to_device(const at::Tensor& shard, const at::Tensor& to);
  /// Copies what lies beside rows to `shard`: on the host it has it after await_device().
  void copy_to_shard(const at::Tensor& from, const at::Tensor& shard);
  /// Where shards are on the host: blocks until all copies are done.
  void await_device();

 private:
  at::Device device_;
  std::shared_ptr<const StateSwap> swap_;
  bool is_on_host_;
  std::unique_ptr<PinnedStaging> staging_;  // between files and the device
  bool is_awaited_ = false;                 // something was issued since await_device()
  int files_ = 0;
};

}  // namespace lockstep::detail
