// liblockstep_cuda.so: what of lockstep needs CUDA's headers. A rank loads it behind LibTorch's own library
// for CUDA, which has all that is undefined here.
#include <cstdio>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <torch/headeronly/version.h>

#include "cuda/kernels.h"
#include "cuda/nccl.h"
#include "device/cuda_plugin_interface.h"

#define LOCKSTEP_TEXT_OF(number) #number
#define LOCKSTEP_TEXT(number) LOCKSTEP_TEXT_OF(number)

static_assert(CUDART_VERSION / 1000 == LOCKSTEP_CUDA_MAJOR, "CMake found another version of CUDA");

// clang-format off
/// What this library was built with: read from the file before it is loaded (device/cuda_plugin.cpp).
extern "C" __attribute__((visibility("default"), used)) const char lockstep_cuda_build[] =
    LOCKSTEP_CUDA_BUILD_MARK
    "torch=" LOCKSTEP_TEXT(TORCH_VERSION_MAJOR) "." LOCKSTEP_TEXT(TORCH_VERSION_MINOR)
    " cuda=" LOCKSTEP_TEXT(LOCKSTEP_CUDA_MAJOR)
    " nccl=" LOCKSTEP_TEXT(NCCL_MAJOR) "." LOCKSTEP_TEXT(NCCL_MINOR) "." LOCKSTEP_TEXT(NCCL_PATCH) ";";
// clang-format on

namespace lockstep::detail {
namespace {

// The parts of a device in MIG mode have UUIDs of their own.
int device_identity(int device, char* text, std::size_t bytes) {
  cudaDeviceProp properties{};
  const auto error = ::cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  std::size_t at = 0;
  for (const char byte : properties.uuid.bytes) {
    if (at + 3 > bytes) break;
    std::snprintf(text + at, 3, "%02x", static_cast<unsigned char>(byte));
    at += 2;
  }
  return 0;
}

#ifdef LOCKSTEP_HAS_CUDA_KERNELS
constexpr CudaKernels kKernels{.adam_step = &cuda_adam_step,
                               .copy_scaled = &cuda_copy_scaled,
                               .sum_rows = &cuda_sum_rows,
                               .quantize = &cuda_quantize,
                               .dequantize = &cuda_dequantize,
                               .cross_entropy = &cuda_cross_entropy,
                               .cross_entropy_gradient = &cuda_cross_entropy_gradient};
#else
constexpr CudaKernels kKernels{};
#endif

constexpr CudaPlugin kPlugin{
    .device_identity = &device_identity, .connect_nccl = &connect_nccl, .kernels = kKernels};

}  // namespace
}  // namespace lockstep::detail

extern "C" __attribute__((visibility("default"))) const lockstep::detail::CudaPlugin* lockstep_cuda_plugin() {
  return &lockstep::detail::kPlugin;
}
