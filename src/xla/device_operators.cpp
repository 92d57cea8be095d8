// The operators of the device that do not compute: memory, views, copies and numbers that the host reads.
#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <lockstep/base/error.h>

#include "xla/capture.h"
#include "xla/device.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

c10::DeviceIndex index_of(std::optional<c10::Device> device) {
  if (device && device->has_index()) return device->index();
  return c10::impl::VirtualGuardImpl(c10::kXLA).getDevice().index();
}

at::Tensor empty_kernel(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>,
                        std::optional<at::MemoryFormat>) {
  return make_tensor(sizes, dtype.value_or(c10::get_default_dtype_as_scalartype()), index_of(device));
}

// Memory is in row-major order whatever is asked for: strides are of no use to XLA.
at::Tensor empty_strided_kernel(at::IntArrayRef sizes, at::IntArrayRef, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout>, std::optional<at::Device> device,
                                std::optional<bool>) {
  return make_tensor(sizes, dtype.value_or(c10::get_default_dtype_as_scalartype()), index_of(device));
}

at::Tensor new_empty_strided_kernel(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef,
                                    std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                                    std::optional<at::Device> device, std::optional<bool>) {
  const auto options =
      at::TensorOptions(device.value_or(self.device())).dtype(dtype.value_or(self.scalar_type()));
  return at::empty(sizes, options);
}

at::Tensor as_strided_kernel(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                             std::optional<std::int64_t> offset) {
  return view_of(self, sizes, strides, offset.value_or(self.storage_offset()));
}

at::Tensor view_kernel(const at::Tensor& self, at::IntArrayRef sizes) {
  const auto inferred = at::infer_size_dv(sizes, self.numel());
  const auto strides = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(strides, "view: the tensor's strides do not allow the sizes ", sizes, "; use reshape()");
  return view_of(self, inferred, *strides, self.storage_offset());
}

at::Tensor reshape_alias_kernel(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return view_of(self, sizes, strides, self.storage_offset());
}

const at::Tensor& resize_kernel(const at::Tensor& self, at::IntArrayRef sizes,
                                std::optional<at::MemoryFormat>) {
  if (self.sizes() == sizes) return self;
  const auto made = make_tensor(sizes, self.scalar_type(), self.device().index());
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(made.storage());
  impl->set_sizes_and_strides(made.sizes(), made.strides(), 0);
  return self;
}

at::Tensor copy_from_kernel(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  if (!source.defined() || !target.defined()) return target;
  if (target.device().is_cpu()) {
    target.copy_(to_host(source));
    return target;
  }
  const std::lock_guard lock(device_mutex());
  const auto device = target.device().index();
  if (source.device().is_cpu()) {
    refuse_in_capture("a tensor of the host is copied");
    write(target, host_value(source.to(target.scalar_type()).expand(target.sizes()), device));
    return target;
  }
  if (source.device() != target.device()) {
    const auto on_host = to_host(source);
    write(target, host_value(on_host.to(target.scalar_type()).expand(target.sizes()), device));
    return target;
  }
  const Shape shape{target.sizes().vec(), target.scalar_type()};
  auto value = read(source);
  write(target, value.shape() == shape ? std::move(value) : made_by(kConvert, {std::move(value)}, shape));
  note_operator(device);
  return target;
}

at::Tensor copy_from_and_resize_kernel(const at::Tensor& source, const at::Tensor& target) {
  resize_kernel(target, source.sizes(), std::nullopt);
  return copy_from_kernel(source, target, false);
}

// LibTorch's own is for devices that are not XLA.
at::Tensor select_backward_kernel(const at::Tensor& gradient, at::IntArrayRef sizes, std::int64_t dimension,
                                  std::int64_t index) {
  auto whole = at::zeros(sizes, gradient.options());
  whole.select(dimension, index).copy_(gradient);
  return whole;
}

at::Scalar local_scalar_dense_kernel(const at::Tensor& self) { return to_host(self).item(); }

// Modules are moved by giving their parameters other tensors.
bool has_compatible_type_kernel(const at::Tensor&, const at::Tensor&) { return true; }

TORCH_LIBRARY_IMPL(aten, XLA, library) {
  library.impl("empty.memory_format", TORCH_FN(empty_kernel));
  library.impl("empty_strided", TORCH_FN(empty_strided_kernel));
  library.impl("new_empty_strided", TORCH_FN(new_empty_strided_kernel));
  library.impl("as_strided", TORCH_FN(as_strided_kernel));
  library.impl("view", TORCH_FN(view_kernel));
  library.impl("_reshape_alias", TORCH_FN(reshape_alias_kernel));
  library.impl("resize_", TORCH_FN(resize_kernel));
  library.impl("_copy_from", TORCH_FN(copy_from_kernel));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize_kernel));
  library.impl("select_backward", TORCH_FN(select_backward_kernel));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense_kernel));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_type_kernel));
}

}  // namespace
}  // namespace lockstep::xla
