// NVIDIA's GPUs, by a LibTorch that was built for CUDA.
#pragma once

#include <memory>

#include <lockstep/device/accelerator.h>

namespace lockstep::detail {

/// The program need not link LibTorch's CUDA library: load() does, from the folder where LibTorch lies.
std::shared_ptr<const Accelerator> make_cuda_accelerator();

}  // namespace lockstep::detail
