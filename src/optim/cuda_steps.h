// Steps of optimizers by kernels of our own (device/cuda_kernels.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "device/cuda_kernels.h"

namespace lockstep::detail {

/// Takes `step`, but for its tensors and types, which are those of the lists; `steps` are counted already.
/// Returns false, and nothing has happened, where there is no kernel for them.
bool step_by_own_kernel(CudaAdamStep step, at::TensorList parameters, at::TensorList gradients,
                        at::TensorList exp_avgs, at::TensorList exp_avg_sqs, at::TensorList steps);

}  // namespace lockstep::detail
