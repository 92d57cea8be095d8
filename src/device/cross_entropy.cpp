#include <lockstep/device/cross_entropy.h>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <lockstep/device/torch_device.h>

#include "device/cuda_plugin.h"
#include "device/own_kernels.h"

namespace lockstep {
namespace {

using detail::CudaCrossEntropy;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool fits_kernel(const at::Tensor& scores, const at::Tensor& targets) {
  if (detail::own_kernels(scores.device()).cross_entropy == nullptr) return false;
  if (scores.dim() != 2 || !scores.is_contiguous()) return false;
  const bool are_targets = targets.device() == scores.device() && targets.scalar_type() == at::kLong &&
                           targets.dim() == 1 && targets.size(0) == scores.size(0) && targets.is_contiguous();
  const auto type = detail::cuda_type(scores.scalar_type());
  return are_targets && type && *type != detail::CudaType::kFloat64;
}

CudaCrossEntropy arguments_of(const at::Tensor& scores, const at::Tensor& targets, std::int64_t ignored,
                              const at::Tensor& losses, const at::Tensor& log_sums) {
  return {.scores = scores.const_data_ptr(),
          .type = *detail::cuda_type(scores.scalar_type()),
          .targets = targets.const_data_ptr<std::int64_t>(),
          .rows = scores.size(0),
          .classes = scores.size(1),
          .ignored = ignored,
          .losses = losses.defined() ? losses.mutable_data_ptr<float>() : nullptr,
          .log_sums = log_sums.mutable_data_ptr<float>()};
}

// The gradient has no gradient of its own.
class OwnCrossEntropy final : public torch::autograd::Function<OwnCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores, const at::Tensor& targets,
                            std::int64_t ignored) {
    const c10::DeviceGuard guard(scores.device());
    const auto in_float = scores.options().dtype(at::kFloat);
    const auto losses = at::empty({scores.size(0)}, in_float),
               log_sums = at::empty({scores.size(0)}, in_float);
    detail::check_cuda_launch(detail::own_kernels(scores.device())
                                  .cross_entropy(arguments_of(scores, targets, ignored, losses, log_sums),
                                                 detail::kernel_stream(scores)),
                              "cross_entropy");
    const auto count = targets.ne(ignored).sum();
    context->save_for_backward({scores, targets, log_sums, count});
    context->saved_data["ignored"] = ignored;
    return losses.sum() / count;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto &scores = saved[0], &targets = saved[1], &log_sums = saved[2], &count = saved[3];
    const c10::DeviceGuard guard(scores.device());
    const auto scale = (gradients[0] / count).to(at::kFloat).contiguous();
    const auto gradient = at::empty_like(scores);
    detail::check_cuda_launch(
        detail::own_kernels(scores.device())
            .cross_entropy_gradient(
                {.forward =
                     arguments_of(scores, targets, context->saved_data["ignored"].toInt(), {}, log_sums),
                 .scale = scale.const_data_ptr<float>(),
                 .gradient = gradient.mutable_data_ptr()},
                detail::kernel_stream(scores)),
        "cross_entropy_gradient");
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& targets, std::int64_t ignore_index) {
  if (fits_kernel(scores, targets)) return OwnCrossEntropy::apply(scores, targets, ignore_index);
  return at::cross_entropy_loss(scores, targets, /*weight=*/{}, at::Reduction::Mean, ignore_index);
}

}  // namespace lockstep
