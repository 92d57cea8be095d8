// The kernels of device/cuda_kernels.h.
#pragma once

#include "device/cuda_kernels.h"

namespace lockstep::detail {

int cuda_adam_step(const CudaAdamStep& step, void* stream);
int cuda_copy_scaled(const CudaCopies& copies, void* stream);
int cuda_sum_rows(const CudaRowSum& sum, void* stream);
int cuda_quantize(const CudaQuantization& quantization, void* stream);
int cuda_dequantize(const CudaDequantization& dequantization, void* stream);
int cuda_cross_entropy(const CudaCrossEntropy& entropy, void* stream);
int cuda_cross_entropy_gradient(const CudaCrossEntropyGradient& gradient, void* stream);

}  // namespace lockstep::detail
