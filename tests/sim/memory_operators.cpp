// Operators that make tensors, or other tensors of the same memory.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

#include "sim/operators.h"
#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

using at::IntArrayRef;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(sizes, &device_allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize(const at::Tensor& tensor, IntArrayRef sizes,
                         std::optional<at::MemoryFormat> format) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  const auto elements = tensor.storage_offset() + c10::multiply_integers(sizes);
  const auto bytes = static_cast<std::size_t>(elements) * tensor.element_size();
  if (bytes > tensor.storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
  impl->set_sizes_contiguous(sizes);
  if (format) impl->empty_tensor_restride(*format);
  return tensor;
}

at::Tensor as_strided(const at::Tensor& tensor, IntArrayRef sizes, IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& tensor, IntArrayRef sizes) { return at::native::view(tensor, sizes); }
at::Tensor reshape_alias(const at::Tensor& tensor, IntArrayRef sizes, IntArrayRef strides) {
  return at::native::_reshape_alias(tensor, sizes, strides);
}
at::Tensor unfold(const at::Tensor& tensor, std::int64_t dim, std::int64_t size, std::int64_t step) {
  return at::native::unfold(tensor, dim, size, step);
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, std::int64_t offset, IntArrayRef sizes,
                        IntArrayRef strides) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (strides.data() != nullptr) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  return tensor;
}
at::Tensor& set_tensor(at::Tensor& tensor, const at::Tensor& other) {
  return set_storage(tensor, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}

void record_tensor(at::Tensor& tensor, at::Stream s) {
  device_allocator().recordStream(tensor.storage().data_ptr(), s);
}

// For Module::to(): LibTorch's own list of devices lacks PrivateUse1.
bool may_set_data(const at::Tensor&, const at::Tensor&) { return true; }

}  // namespace

void add_memory_operators(torch::Library& aten) {
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("resize_", &resize);
  aten.impl("as_strided", &as_strided);
  aten.impl("view", &view);
  aten.impl("view_as_complex", &at::native::view_as_complex);
  aten.impl("view_as_real", &at::native::view_as_real);
  aten.impl("_reshape_alias", &reshape_alias);
  aten.impl("unfold", &unfold);
  aten.impl("set_.source_Storage_storage_offset", &set_storage);
  aten.impl("set_.source_Tensor", &set_tensor);
  aten.impl("record_stream", &record_tensor);
  aten.impl("_has_compatible_shallow_copy_type", &may_set_data);
}

}  // namespace lockstep::sim
