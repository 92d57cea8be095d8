#include "sim/kernel_views.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

void* memory_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
}

struct Dim {
  std::int64_t size, stride;
};

}  // namespace

bool is_on_sim(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDeviceType; }

std::optional<Span> span_of(const at::Tensor& tensor, bool is_written) {
  auto* const memory = memory_of(tensor);
  if (tensor.numel() == 0 || memory == nullptr) return std::nullopt;
  const auto element_bytes = static_cast<std::int64_t>(tensor.element_size());
  std::vector<Dim> dims;
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
    if (tensor.size(d) > 1 && tensor.stride(d) > 0) dims.push_back({tensor.size(d), tensor.stride(d)});
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(memory) + tensor.storage_offset() * element_bytes;
  Span span{.begin = begin, .end = begin + (last + 1) * element_bytes, .is_written = is_written};
  std::ranges::sort(dims, {}, &Dim::stride);
  std::int64_t row = 1;
  auto dim = dims.begin();
  for (; dim != dims.end() && dim->stride <= row; ++dim) row = (dim->size - 1) * dim->stride + row;
  if (dim == dims.end()) return span;
  const auto first = dim;
  auto rows = dim->size;
  for (++dim; dim != dims.end() && dim->stride == first->stride * rows; ++dim) rows *= dim->size;
  if (dim != dims.end()) return span;
  span.row_bytes = row * element_bytes;
  span.stride = first->stride * element_bytes;
  return span;
}

void add_span(std::vector<Span>& spans, const at::Tensor& tensor, bool is_written) {
  if (const auto span = span_of(tensor, is_written)) spans.push_back(*span);
}

at::Tensor KernelViews::of(const at::Tensor& tensor) {
  auto& view = tensors_[tensor.unsafeGetTensorImpl()];
  if (view.defined()) return view;
  auto* const storage_impl = tensor.storage().unsafeGetStorageImpl();
  auto& storage = storages_[storage_impl];
  if (!storage) {
    auto* const memory = memory_of(tensor);
    c10::DataPtr bytes(memory != nullptr ? runtime().space.for_kernels(memory) : nullptr, c10::kCPU);
    storage = c10::Storage(c10::Storage::use_byte_size_t(), storage_impl->nbytes(), std::move(bytes), nullptr,
                           /*resizable=*/false);
  }
  view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                  c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  auto* const impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  return view;
}

at::Tensor kernel_view(const at::Tensor& tensor) {
  const KernelScope scope;
  return KernelViews().of(tensor);
}

c10::Stream stream(c10::DeviceIndex device, int number) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, device), number);
}

void launch(const std::string& name, c10::DeviceIndex device, const std::vector<Operand>& operands,
            std::function<void()> body) {
  Kernel kernel{.op = name, .body = [body = std::move(body)](const Launch&) { body(); }};
  for (const auto& operand : operands) add_span(kernel.spans, operand.tensor, operand.is_written);
  enqueue(current_stream(device), std::move(kernel));
}

}  // namespace lockstep::sim
