#include "device/batch_transfer.h"

#include <map>
#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include <lockstep/device/torch_device.h>

#include "device/step_recording.h"
#include "device/xla_library_interface.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kLeastAge = 2;  // copies from when memory is unused to its next use
constexpr std::int64_t kMostAge = 32;  // until it is given back

at::TensorOptions bytes_on(at::Device device) { return at::TensorOptions(device).dtype(at::kByte); }

}  // namespace

BatchTransfer::BatchTransfer(at::Device device) : device_(device), stream_(side_stream(device)) {}

BatchTransfer& BatchTransfer::of(at::Device device) {
  static std::mutex mutex;
  static auto& all =
      *new std::map<std::int64_t, std::unique_ptr<BatchTransfer>>();  // outlives its devices' users
  const std::lock_guard lock(mutex);
  auto& found = all[(static_cast<std::int64_t>(device.type()) << 32) + device.index()];
  if (!found) found = std::make_unique<BatchTransfer>(device);
  return *found;
}

at::Tensor BatchTransfer::copy(const at::Tensor& tensor) {
  refuse_in_recording("a copy from the CPU");
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  const auto current = current_stream(device_);
  ++copies_;
  is_under_way_ = true;
  look_for_unused(current);
  const auto source = tensor.is_pinned() ? tensor : tensor.pin_memory();
  at::Tensor copied;
  {
    const c10::StreamGuard guard(stream_);
    copied = at::empty({0}, source.options().device(device_).pinned_memory(false));
    copied.set_(take(source.nbytes()), 0, source.sizes(), source.strides());
    copied.copy_(source, /*non_blocking=*/true);
  }
  return copied;
}

void BatchTransfer::finish() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_under_way_, false)) order_streams(stream_, current_stream(device_));
}

// Who has let go of it may have issued work until now that uses it.
void BatchTransfer::look_for_unused(const c10::Stream& current) {
  std::shared_ptr<c10::Event> now;
  for (auto& buffer : buffers_) {
    if (buffer.unused_since != kInUse || buffer.storage.use_count() > 1) continue;
    if (!now) {
      now = std::make_shared<c10::Event>(device_.type());
      now->record(current);
    }
    buffer.unused_since = copies_;
    buffer.given_up = now;
  }
  std::erase_if(buffers_, [&](const Buffer& buffer) {
    if (buffer.unused_since == kInUse || copies_ - buffer.unused_since < kMostAge) return false;
    wait_for_users(buffer);  // LibTorch's allocator gives it to others in the order of this stream
    return true;
  });
}

void BatchTransfer::wait_for_users(const Buffer& buffer) {
  if (buffer.unused_since <= waited_for_) return;
  buffer.given_up->block(stream_);
  waited_for_ = buffer.unused_since;
}

c10::Storage BatchTransfer::take(std::uint64_t bytes) {
  for (auto& buffer : buffers_) {
    const auto size = buffer.storage.nbytes();
    const bool is_free = buffer.unused_since != kInUse && copies_ - buffer.unused_since >= kLeastAge;
    if (!is_free || size < bytes || size > 2 * bytes) continue;
    wait_for_users(buffer);
    buffer.unused_since = kInUse;
    return buffer.storage;
  }
  const auto memory = at::empty({static_cast<std::int64_t>(bytes)}, bytes_on(device_));
  buffers_.push_back({.storage = memory.storage()});
  return memory.storage();
}

at::Tensor part_to_device(const at::Tensor& tensor, at::Device device) {
  const bool is_plain = tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided &&
                        tensor.is_non_overlapping_and_dense() && tensor.numel() > 0 &&
                        !tensor.requires_grad() && !tensor.is_conj() && !tensor.is_neg();
  if (!is_plain || device.is_cpu()) return to_device(tensor, device);
  if (device.is_xla()) return xla_copy_of_batch(tensor, device);
  return BatchTransfer::of(device).copy(tensor);
}

void finish_batch(at::Device device) {
  if (!device.is_cpu() && !device.is_xla()) BatchTransfer::of(device).finish();
}

at::Tensor batch_to_device(const at::Tensor& tensor, at::Device device) {
  auto moved = part_to_device(tensor, device);
  finish_batch(device);
  return moved;
}

}  // namespace lockstep::detail
