#include "optim/cuda_steps.h"

#include <algorithm>
#include <vector>

#include "device/cuda_plugin.h"
#include "device/own_kernels.h"

namespace lockstep::detail {
namespace {

bool are_alike(at::TensorList tensors) {
  return std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
    return tensor.device() == tensors.front().device() && tensor.is_contiguous() &&
           tensor.scalar_type() == tensors.front().scalar_type();
  });
}

}  // namespace

bool step_by_own_kernel(CudaAdamStep step, at::TensorList parameters, at::TensorList gradients,
                        at::TensorList exp_avgs, at::TensorList exp_avg_sqs, at::TensorList steps) {
  if (parameters.empty()) return false;
  const auto launch = own_kernels(parameters.front().device()).adam_step;
  const auto type = cuda_type(parameters.front().scalar_type());
  const auto gradient_type = cuda_type(gradients.front().scalar_type());
  const bool fits =
      launch != nullptr && type && gradient_type &&
      std::ranges::all_of(std::initializer_list<at::TensorList>{parameters, gradients, exp_avgs, exp_avg_sqs},
                          are_alike);
  if (!fits) return false;
  std::vector<CudaAdamTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    tensors.push_back({.param = parameters[i].mutable_data_ptr(),
                       .gradient = gradients[i].const_data_ptr(),
                       .exp_avg = exp_avgs[i].mutable_data_ptr(),
                       .exp_avg_sq = exp_avg_sqs[i].mutable_data_ptr(),
                       .step = steps[i].const_data_ptr<float>(),
                       .size = parameters[i].numel()});
  step.tensors = tensors.data();
  step.count = static_cast<int>(tensors.size());
  step.type = *type;
  step.gradient_type = *gradient_type;
  check_cuda_launch(launch(step, kernel_stream(parameters.front())), "adam_step");
  return true;
}

}  // namespace lockstep::detail
