// Cross-entropy over many classes, such as the words of a language model.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// The mean over rows of the cross-entropy of `scores`, rows x classes of a floating type, with `targets`,
/// int64 of each row; rows whose target is `ignore_index` do not count. What F::cross_entropy gives, whose
/// operator it is but for GPUs with LOCKSTEP_CUDA_KERNELS=1: there a kernel reads scores of float32 or 16
/// bits once, and another writes their gradient, without a copy in float32 or the probabilities, which for
/// 50,304 words and 16,384 tokens are 3.3 GB each. There the loss is float32, and the gradient has no
/// gradient of its own. Not Collective. Blocks no longer than an operator.
/// @throws c10::Error for shapes and types that do not fit
LOCKSTEP_API at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& targets,
                                      std::int64_t ignore_index = -100);

}  // namespace lockstep
