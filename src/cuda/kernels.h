// The kernels of device/cuda_kernels.h.
#pragma once

#include "device/cuda_kernels.h"

namespace lockstep::detail {

int cuda_adam_step(const CudaAdamStep& step, void* stream);
int cuda_copy_scaled(const CudaCopies& copies, void* stream);
int cuda_sum_rows(const CudaRowSum& sum, void* stream);

}  // namespace lockstep::detail
