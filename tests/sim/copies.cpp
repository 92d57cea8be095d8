// Copies between host and devices, and what else makes the host wait.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "sim/kernel_views.h"
#include "sim/operators.h"
#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

void count(std::uint64_t Counters::*counter) {
  const std::lock_guard lock(runtime().mutex);
  ++(runtime().counters.*counter);
}

std::function<void(const Launch&)> copying(const at::Tensor& from, const at::Tensor& to) {
  return [from, to](const Launch&) {
    const KernelScope scope;
    to.copy_(from);
  };
}

// Without a hold on the memory, which its allocator keeps until streams are done with it.
at::Tensor unowned(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options());
}

HostCopy host_copy_of(const at::Tensor& tensor, bool arrives) {
  return {.memory = static_cast<char*>(tensor.data_ptr()), .bytes = tensor.nbytes(), .arrives = arrives};
}

// Both devices' streams are ordered, before and after.
void copy_between(const at::Tensor& from, const at::Tensor& to) {
  const int reader = current_stream(to.device().index()), owner = current_stream(from.device().index());
  const auto ready = std::make_shared<Event>(), done = std::make_shared<Event>();
  record(ready, owner);
  wait_on_stream(ready, reader);
  Kernel kernel{.op = "aten::copy_", .body = copying(kernel_view(from), kernel_view(to)), .is_peer = true};
  add_span(kernel.spans, from, /*is_written=*/false);
  add_span(kernel.spans, to, /*is_written=*/true);
  enqueue(reader, std::move(kernel));
  record(done, reader);
  wait_on_stream(done, owner);
}

void copy_within(const at::Tensor& from, const at::Tensor& to) {
  KernelViews views;
  Kernel kernel{.op = "aten::copy_", .body = copying(views.of(from), views.of(to))};
  add_span(kernel.spans, from, /*is_written=*/false);
  add_span(kernel.spans, to, /*is_written=*/true);
  enqueue(current_stream(to.device().index()), std::move(kernel));
}

// Of memory that is not pinned, the bytes are taken at once, as by cudaMemcpyAsync.
void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  count(&Counters::copies_to_device);
  const bool is_from_pinned = from.numel() > 0 && is_pinned(from.const_data_ptr());
  const int stream = current_stream(to.device().index());
  if (!non_blocking) note_host_sync("copy to the device");
  Kernel kernel{.op = "copy to the device"};
  add_span(kernel.spans, to, /*is_written=*/true);
  if (is_from_pinned) {
    add_span(kernel.spans, from, /*is_written=*/false);
    kernel.body = copying(unowned(from), kernel_view(to));
    if (from.is_contiguous()) kernel.host_copy = host_copy_of(from, /*arrives=*/false);
  } else {
    refuse_in_capture(stream, "a copy from memory that is not pinned");
    kernel.body = copying(from.clone(), kernel_view(to));
  }
  enqueue(stream, std::move(kernel));
  if (!non_blocking) wait_for_stream(stream);
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  count(&Counters::copies_to_host);
  const bool is_to_pinned = to.numel() > 0 && is_pinned(to.const_data_ptr());
  const bool goes_on = non_blocking && is_to_pinned && to.is_contiguous();
  if (!goes_on) note_host_sync("copy to the host");
  const int stream = current_stream(from.device().index());
  Kernel kernel{.op = "copy to the host"};
  add_span(kernel.spans, from, /*is_written=*/false);
  if (is_to_pinned) add_span(kernel.spans, to, /*is_written=*/true);
  if (goes_on) {
    kernel.host_copy = host_copy_of(to, /*arrives=*/true);
    kernel.body = [source = kernel_view(from), sizes = to.sizes().vec(),
                   options = to.options()](const Launch& launch) {
      const KernelScope scope;
      at::from_blob(launch.arrives_at, sizes, options.pinned_memory(false)).copy_(source);
    };
    return enqueue(stream, std::move(kernel));
  }
  kernel.body = copying(kernel_view(from), unowned(to));
  enqueue(stream, std::move(kernel));
  wait_for_stream(stream);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  throw_failure();
  const c10::DeviceGuard guard(is_on_sim(to) ? to.device() : from.device());
  const KernelScope scope;
  if (!is_on_sim(to)) {
    copy_to_host(from, to, non_blocking);
  } else if (!is_on_sim(from)) {
    copy_to_device(from, to, non_blocking);
  } else if (from.device() == to.device()) {
    copy_within(from, to);
  } else {
    copy_between(from, to);
  }
  return to;
}

at::Scalar item(const at::Tensor& tensor) {
  note_host_sync("item()");
  const int stream = current_stream(tensor.device().index());
  Kernel kernel{.op = "item()", .body = [](const Launch&) {}};
  add_span(kernel.spans, tensor, /*is_written=*/false);
  enqueue(stream, std::move(kernel));
  wait_for_stream(stream);
  const KernelScope scope;
  return kernel_view(tensor).item();
}

}  // namespace

void add_copies(torch::Library& aten) {
  aten.impl("_copy_from", &copy_from);
  aten.impl("_local_scalar_dense", &item);
}

}  // namespace lockstep::sim
