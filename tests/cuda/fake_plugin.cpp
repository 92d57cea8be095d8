// A liblockstep_cuda.so that fits fake_torch_cuda.cpp, and needs no CUDA.
#include "device/cuda_plugin_interface.h"

extern "C" __attribute__((visibility("default"), used)) const char lockstep_cuda_build[] =
    LOCKSTEP_CUDA_BUILD_MARK "torch=" LOCKSTEP_TORCH_MINOR_VERSION " cuda=13 nccl=2.29.7;";

extern "C" __attribute__((visibility("default"))) const lockstep::detail::CudaPlugin* lockstep_cuda_plugin() {
  static constexpr lockstep::detail::CudaPlugin kPlugin{};
  return &kPlugin;
}
