#include "parallel/activations/host_copy.h"

#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/device/torch_device.h>
#include <lockstep/torch.h>

#include "device/step_recording.h"

namespace lockstep::detail {
namespace {

at::TensorOptions bytes_on(at::Device device) { return at::TensorOptions(device).dtype(at::kByte); }

// Its memory is given to others only once that stream is done with it.
void use_on(const c10::Storage& memory, const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(memory.data_ptr(), stream);
}

}  // namespace

HostCopy::HostCopy(const c10::Storage& memory, std::weak_ptr<HostCopy> previous)
    : device_(memory.device()), stream_(offload_stream(device_)), previous_(std::move(previous)) {
  refuse_in_recording("offloaded activations, whose memory on the host is another one each time,");
  const at::NoGradGuard no_grad;
  const auto size = static_cast<std::int64_t>(memory.nbytes());
  const auto source = at::empty({0}, bytes_on(device_)).set_(memory, 0, {size}, {1});
  bytes_ = at::empty({size}, bytes_on(at::kCPU).pinned_memory(true));
  order_streams(current_stream(device_), stream_);
  const c10::StreamGuard guard(stream_);
  bytes_.copy_(source, /*non_blocking=*/true);
  use_on(memory, stream_);
}

void HostCopy::fetch() {
  if (fetched_.defined()) return;
  const at::NoGradGuard no_grad;
  const c10::StreamGuard guard(stream_);
  fetched_ = at::empty(bytes_.sizes(), bytes_on(device_));
  fetched_.copy_(bytes_, /*non_blocking=*/true);
}

// What another tensor of the same memory has fetched is used again.
c10::Storage HostCopy::storage() {
  if (in_use_) {
    if (auto known = in_use_->lock()) return c10::Storage(std::move(known));
  }
  fetch();
  const auto current = current_stream(device_);
  order_streams(stream_, current);
  auto storage = std::exchange(fetched_, {}).storage();
  use_on(storage, current);
  in_use_ = storage.getWeakStorageImpl();
  if (const auto next = previous_.lock()) next->fetch();
  return storage;
}

}  // namespace lockstep::detail
