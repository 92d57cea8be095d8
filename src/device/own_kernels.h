// Which kernels of our own (device/cuda_kernels.h) a device has. Code that has tensors of any device asks
// here, and goes by operators of LibTorch where there is none.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <lockstep/base/export.h>

#include "device/cuda_kernels.h"

namespace lockstep::detail {

/// All null where `device` has none: those of CUDA's are own_cuda_kernels().
LOCKSTEP_API const CudaKernels& own_kernels(at::Device device);

/// For tests: what devices of `type` have from now on. `kernels` stay until the process ends; null takes them
/// away. Before there are threads that use them.
LOCKSTEP_API void set_own_kernels(at::DeviceType type, const CudaKernels* kernels);

/// CUDA's stream that is current on the device of `tensor`, as kernels take it.
void* kernel_stream(const at::Tensor& tensor);

/// A tensor and where its elements go, with as many of any floating type, on one device.
struct TensorCopy {
  at::Tensor from, to;
};

/// Whether copy_in() takes many tensors at once: then it pays to wait until there are many.
bool copies_at_once(at::Device device);

/// Copies each. By the kernel copy_scaled, a launch for up to 48 that have their types in common, where the
/// device has it and a tensor is contiguous; else one by one. The bits are those of at::Tensor::copy_(). Does
/// not block.
LOCKSTEP_API void copy_in(std::span<const TensorCopy> copies);

}  // namespace lockstep::detail
