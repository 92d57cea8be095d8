// How batches reach a device: by page-locked memory, on a stream of their own, while the batch before is
// worked on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// The memory of tensors that somebody still holds is theirs. What nobody holds any more is used again two
/// copies later, so that a copy waits for what was issued before the latest step, but not for that step.
/// Thread-safe. Exported for tests.
class LOCKSTEP_API BatchTransfer {
 public:
  explicit BatchTransfer(at::Device device);

  /// The one of `device` in this process.
  static BatchTransfer& of(at::Device device);

  /// `tensor`, on the CPU, dense, on the device: from finish() on. The host waits for nothing.
  at::Tensor copy(const at::Tensor& tensor);
  /// Makes the current stream wait for what was copied.
  void finish();

 private:
  /// Memory for a tensor, in use while others than this hold it.
  struct Buffer {
    c10::Storage storage;
    std::int64_t unused_since = kInUse;         // the number of a copy
    std::shared_ptr<c10::Event> given_up = {};  // what had been issued then
  };
  static constexpr std::int64_t kInUse = -1;

  void look_for_unused(const c10::Stream& current);
  void wait_for_users(const Buffer& buffer);
  c10::Storage take(std::uint64_t bytes);

  const at::Device device_;
  const c10::Stream stream_;
  std::mutex mutex_;  // guards all below
  std::vector<Buffer> buffers_;
  std::int64_t copies_ = 0;
  bool is_under_way_ = false;    // a copy that no stream waits for yet
  std::int64_t waited_for_ = 0;  // the latest unused_since whose users the stream comes after
};

/// to_device() for tensors of batches: those of the CPU by BatchTransfer. Once all of a batch are given, one
/// finish_batch() is due.
LOCKSTEP_API at::Tensor part_to_device(const at::Tensor& tensor, at::Device device);
LOCKSTEP_API void finish_batch(at::Device device);

/// Both.
LOCKSTEP_API at::Tensor batch_to_device(const at::Tensor& tensor, at::Device device);

}  // namespace lockstep::detail
