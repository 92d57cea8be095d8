// What liblockstep_cuda.so and liblockstep.so know of each other. The library's code is bound to one minor
// version of LibTorch, one major version of CUDA and one version of NCCL's header, so it says in a text which
// these are, and the text is read from the file before the library is loaded.
#pragma once

#include <chrono>
#include <cstddef>

#include "device/cuda_kernels.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lockstep::detail {

/// The text begins so; "torch=2.13 cuda=13 nccl=2.29.7;" follows.
#define LOCKSTEP_CUDA_BUILD_MARK "lockstep-cuda-build: "

/// What the library offers: a table of C functions.
struct CudaPlugin {
  /// Writes what tells the device apart from all others, and is the same to all processes of the machine, to
  /// `text`, of `bytes` bytes. Returns an error of CUDA's runtime, 0 for none.
  int (*device_identity)(int device, char* text, std::size_t bytes) = nullptr;

  /// NCCL between the ranks that meet in `store`, by c10d's ProcessGroupNCCL: connected, and the caller's.
  /// Blocks until all have called it. Throws what LibTorch does.
  c10d::Backend* (*connect_nccl)(c10d::Store* store, int rank, int size, int device,
                                 std::chrono::milliseconds timeout) = nullptr;

  CudaKernels kernels = {};
};

/// The C symbol that gives the table.
inline constexpr const char* kCudaPluginSymbol = "lockstep_cuda_plugin";
using CudaPluginFunction = const CudaPlugin* (*)();

}  // namespace lockstep::detail
