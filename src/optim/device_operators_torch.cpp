// The operators of device_operators.h on CUDA, made of LibTorch's own: fused kernels where it has them, else
// those over lists of tensors. Another device without kernels of its own may register the same functions.
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/library.h>

#include <lockstep/optim/grad_norm.h>

#include "optim/cuda_steps.h"

namespace lockstep::detail {
namespace {

using Tensors = std::vector<at::Tensor>;
using OptionalTensor = std::optional<at::Tensor>;

Tensors in_type_of(at::TensorList parameters, at::TensorList gradients) {
  Tensors converted;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    converted.push_back(gradients[i].to(parameters[i].scalar_type()).contiguous());
  return converted;
}

// LibTorch divides by its grad_scale.
OptionalTensor divisor(const OptionalTensor& grad_scale) {
  if (!grad_scale) return std::nullopt;
  return grad_scale->reciprocal().to(at::kFloat);
}

// Fused kernels take a learning rate in a tensor as float32: a captured step is to have the bits of others.
// Steps of float64 are not given one.
double rounded(double lr, at::TensorList parameters) {
  const bool is_double = !parameters.empty() && parameters.front().scalar_type() == at::kDouble;
  return is_double ? lr : static_cast<double>(static_cast<float>(lr));
}

// Steps that are left out are not counted.
void count(at::TensorList steps, const OptionalTensor& found_inf) {
  if (steps.empty()) return;
  if (!found_inf) return at::_foreach_add_(steps, 1);
  at::_foreach_add_(steps, 1.0 - *found_inf);
}

// The gradients times grad_scale, and with the sign of the direction to go.
Tensors scaled(at::TensorList parameters, at::TensorList gradients, const OptionalTensor& grad_scale,
               bool maximize) {
  auto grads = in_type_of(parameters, gradients);
  if (grad_scale) grads = at::_foreach_mul(grads, grad_scale->to(grads.front().scalar_type()));
  return maximize ? at::_foreach_neg(grads) : grads;
}

// Takes the updates times the learning rate from the parameters.
void subtract(at::TensorList parameters, at::TensorList updates, double lr, const OptionalTensor& lr_tensor) {
  const auto moves = lr_tensor ? at::_foreach_mul(updates, lr_tensor->to(updates.front().scalar_type()))
                               : at::_foreach_mul(updates, lr);
  at::_foreach_sub_(parameters, moves);
}

// Runs update(), which writes to the tensors of `written`, counts the step, and takes both back where
// gradients overflowed.
template <class Update>
void take_step(const std::vector<at::TensorList>& written, at::TensorList steps,
               const OptionalTensor& found_inf, const Update& update) {
  std::vector<Tensors> before;
  for (const auto& list : written) {
    before.emplace_back();
    for (const auto& tensor : list) before.back().push_back(found_inf ? tensor.clone() : tensor);
  }
  update();
  count(steps, found_inf);
  if (!found_inf) return;
  const auto is_left_out = *found_inf != 0;
  for (std::size_t list = 0; list < written.size(); ++list)
    for (std::size_t i = 0; i < written[list].size(); ++i)
      written[list][i].copy_(at::where(is_left_out, before[list][i], written[list][i]));
}

template <class T>
const T* pointer_or_null(const OptionalTensor& tensor) {
  return tensor ? tensor->const_data_ptr<T>() : nullptr;
}

void adam_step_torch(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                     at::TensorList exp_avg_sqs, at::TensorList steps, const OptionalTensor& grad_scale,
                     const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr,
                     double beta1, double beta2, double eps, double weight_decay, bool decoupled,
                     bool maximize, bool bias_correction) {
  count(steps, found_inf);
  const CudaAdamStep step{.grad_scale = pointer_or_null<double>(grad_scale),
                          .found_inf = pointer_or_null<float>(found_inf),
                          .lr_on_device = pointer_or_null<double>(lr_tensor),
                          .lr = lr,
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .eps = eps,
                          .weight_decay = weight_decay,
                          .is_decoupled = decoupled,
                          .is_maximized = maximize,
                          .has_bias_correction = bias_correction};
  if (step_by_own_kernel(step, parameters, gradients, exp_avgs, exp_avg_sqs, steps)) return;
  const auto grads = in_type_of(parameters, gradients);
  // At so late a step nothing is left to be corrected.
  constexpr double kLateStep = 1e9;
  const Tensors late(bias_correction || steps.empty() ? 0 : steps.size(),
                     steps.empty() ? at::Tensor() : at::full_like(steps.front(), kLateStep));
  const auto counted = bias_correction ? steps : at::TensorList(late);
  const auto by = divisor(grad_scale);
  const auto update = [&](const auto& rate) {
    if (decoupled)
      return at::_fused_adamw_(parameters, grads, exp_avgs, exp_avg_sqs, {}, counted, rate, beta1, beta2,
                               weight_decay, eps, /*amsgrad=*/false, maximize, by, found_inf);
    at::_fused_adam_(parameters, grads, exp_avgs, exp_avg_sqs, {}, counted, rate, beta1, beta2, weight_decay,
                     eps, /*amsgrad=*/false, maximize, by, found_inf);
  };
  if (lr_tensor) return update(lr_tensor->to(at::kFloat));
  update(rounded(lr, parameters));
}

// The first gradient fills a buffer undampened. A buffer of zeros comes to the same without dampening.
void sgd_step_torch(at::TensorList parameters, at::TensorList gradients, at::TensorList buffers,
                    at::TensorList /*none*/, at::TensorList steps, const OptionalTensor& grad_scale,
                    const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr,
                    double momentum, double dampening, double weight_decay, bool nesterov, bool maximize) {
  if (dampening == 0.0 || buffers.empty()) {
    count(steps, found_inf);
    const auto update = [&](const auto& rate) {
      at::_fused_sgd_(parameters, in_type_of(parameters, gradients), buffers, weight_decay, momentum, rate,
                      /*dampening=*/0.0, nesterov, maximize, /*is_first_step=*/false, divisor(grad_scale),
                      found_inf);
    };
    return lr_tensor ? update(lr_tensor->to(at::kFloat)) : update(rounded(lr, parameters));
  }
  take_step({parameters, buffers}, steps, found_inf, [&] {
    auto grads = scaled(parameters, gradients, grad_scale, maximize);
    if (weight_decay != 0.0) grads = at::_foreach_add(grads, parameters, weight_decay);
    at::_foreach_mul_(buffers, momentum);
    for (std::size_t i = 0; i < buffers.size(); ++i)
      buffers[i].add_(grads[i] * (1.0 - dampening * (steps[i] > 0).to(grads[i].scalar_type())));
    subtract(parameters, buffers, lr, lr_tensor);
  });
}

void adagrad_step_torch(at::TensorList parameters, at::TensorList gradients, at::TensorList sums,
                        at::TensorList /*none*/, at::TensorList steps, const OptionalTensor& grad_scale,
                        const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr,
                        double lr_decay, double eps, double weight_decay, bool maximize) {
  take_step({parameters, sums}, steps, found_inf, [&] {
    auto grads = scaled(parameters, gradients, grad_scale, maximize);
    if (weight_decay != 0.0) grads = at::_foreach_add(grads, parameters, weight_decay);
    at::_foreach_addcmul_(sums, grads, grads, 1.0);
    auto roots = at::_foreach_sqrt(sums);
    at::_foreach_add_(roots, eps);
    auto updates = at::_foreach_div(grads, roots);
    if (lr_decay != 0.0)
      for (std::size_t i = 0; i < updates.size(); ++i)
        updates[i].div_((1.0 + lr_decay * steps[i]).to(updates[i].scalar_type()));
    subtract(parameters, updates, lr, lr_tensor);
  });
}

void lion_step_torch(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                     at::TensorList /*none*/, at::TensorList steps, const OptionalTensor& grad_scale,
                     const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr,
                     double beta1, double beta2, double weight_decay) {
  take_step({parameters, exp_avgs}, steps, found_inf, [&] {
    const auto grads = scaled(parameters, gradients, grad_scale, /*maximize=*/false);
    auto updates = at::_foreach_mul(exp_avgs, beta1);
    at::_foreach_add_(updates, grads, 1.0 - beta1);
    at::_foreach_sign_(updates);
    if (lr_tensor)
      at::_foreach_mul_(parameters, (1.0 - *lr_tensor * weight_decay).to(parameters.front().scalar_type()));
    else
      at::_foreach_mul_(parameters, 1.0 - lr * weight_decay);
    subtract(parameters, updates, lr, lr_tensor);
    at::_foreach_mul_(exp_avgs, beta2);
    at::_foreach_add_(exp_avgs, grads, 1.0 - beta2);
  });
}

// Flat, and as long as blocks are.
at::Tensor in_blocks(const at::Tensor& gradient) {
  const auto flat = gradient.reshape({-1});
  const auto rest = flat.numel() % kGradNormBlock;
  return rest == 0 ? flat : at::constant_pad_nd(flat, {0, kGradNormBlock - rest});
}

// Few kernels for many small gradients, which are copied together for that; what is large stays where it is.
at::Tensor square_sums_torch(at::TensorList gradients) {
  constexpr std::int64_t kMostTogether = 16 << 20;  // elements
  Tensors sums, together;
  std::int64_t elements = 0;
  const auto sum_together = [&] {
    if (together.empty()) return;
    const auto blocks =
        (together.size() == 1 ? together.front() : at::cat(together)).view({-1, kGradNormBlock});
    sums.push_back(at::linalg_vector_norm(blocks, 2, {1}, /*keepdim=*/false, at::kDouble).square_());
    together.clear();
    elements = 0;
  };
  for (const auto& gradient : gradients) {
    const bool is_alike = together.empty() || together.front().scalar_type() == gradient.scalar_type();
    if (!is_alike || elements + gradient.numel() > kMostTogether) sum_together();
    together.push_back(in_blocks(gradient));
    elements += gradient.numel();
  }
  sum_together();
  return at::cat(sums);
}

at::Tensor pairwise_sum_torch(const at::Tensor& values) {
  auto level = values;
  if (level.numel() == 0) return at::zeros({}, values.options());
  while (level.numel() > 1) {
    const auto pairs = level.numel() / 2;
    auto next = level.narrow(0, 0, 2 * pairs).view({pairs, 2}).sum(1);
    level = level.numel() % 2 == 0 ? next : at::cat({next, level.narrow(0, level.numel() - 1, 1)});
  }
  return level.squeeze();
}

Tensors lamb_updates(at::TensorList parameters, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                     double eps, bool eps_inside_sqrt, double weight_decay) {
  auto roots = eps_inside_sqrt ? at::_foreach_sqrt(at::_foreach_add(exp_avg_sqs, eps))
                               : at::_foreach_sqrt(exp_avg_sqs);
  if (!eps_inside_sqrt) at::_foreach_add_(roots, eps);
  auto updates = at::_foreach_div(exp_avgs, roots);
  if (weight_decay != 0.0) at::_foreach_add_(updates, parameters, weight_decay);
  return updates;
}

at::Tensor lamb_moments_torch(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                              at::TensorList exp_avg_sqs, at::TensorList steps,
                              const OptionalTensor& grad_scale, const OptionalTensor& found_inf,
                              const OptionalTensor& /*lr_tensor*/, double beta1, double beta2, double eps,
                              bool eps_inside_sqrt, double weight_decay) {
  take_step({exp_avgs, exp_avg_sqs}, steps, found_inf, [&] {
    const auto grads = scaled(parameters, gradients, grad_scale, /*maximize=*/false);
    at::_foreach_mul_(exp_avgs, beta1);
    at::_foreach_add_(exp_avgs, grads, 1.0 - beta1);
    at::_foreach_mul_(exp_avg_sqs, beta2);
    at::_foreach_addcmul_(exp_avg_sqs, grads, grads, 1.0 - beta2);
  });
  const auto updates = lamb_updates(parameters, exp_avgs, exp_avg_sqs, eps, eps_inside_sqrt, weight_decay);
  return at::stack({square_sums_torch(parameters), square_sums_torch(updates)}, 1);
}

// The trust ratios of all parameters are computed together.
at::Tensor trust_ratios(const at::Tensor& squares, at::IntArrayRef blocks, double min_coeff,
                        double max_coeff) {
  Tensors sums;
  std::int64_t begin = 0;
  for (const auto count : blocks) {
    sums.push_back(squares.narrow(0, begin, count).sum(0));
    begin += count;
  }
  const auto norms = at::stack(sums).sqrt();
  const auto of_param = norms.select(1, 0), of_update = norms.select(1, 1);
  return at::where((of_param == 0).logical_or(of_update == 0), 1.0,
                   (of_param / of_update).clamp(min_coeff, max_coeff));
}

void lamb_move_torch(at::TensorList parameters, at::TensorList /*gradients*/, at::TensorList exp_avgs,
                     at::TensorList exp_avg_sqs, at::TensorList steps, const OptionalTensor& /*grad_scale*/,
                     const OptionalTensor& found_inf, const OptionalTensor& lr_tensor,
                     const at::Tensor& squares, at::IntArrayRef blocks, double lr, double beta1, double beta2,
                     double eps, bool eps_inside_sqrt, double weight_decay, bool bias_correction,
                     double min_coeff, double max_coeff) {
  if (parameters.empty()) return;
  auto rates = trust_ratios(squares, blocks, min_coeff, max_coeff);
  rates = lr_tensor ? rates * *lr_tensor : rates * lr;
  if (bias_correction) {
    const auto taken = at::stack(steps).to(at::kDouble);
    rates = rates * (1.0 - at::pow(beta2, taken)).sqrt() / (1.0 - at::pow(beta1, taken));
  }
  const auto updates = lamb_updates(parameters, exp_avgs, exp_avg_sqs, eps, eps_inside_sqrt, weight_decay);
  const auto in_type = rates.to(parameters.front().scalar_type()).unbind();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto moved = parameters[i] - updates[i] * in_type[i];
    parameters[i].copy_(found_inf ? at::where(*found_inf != 0, parameters[i], moved) : moved);
  }
}

TORCH_LIBRARY_IMPL(lockstep, CUDA, library) {
  library.impl("adam_step", &adam_step_torch);
  library.impl("sgd_step", &sgd_step_torch);
  library.impl("adagrad_step", &adagrad_step_torch);
  library.impl("lion_step", &lion_step_torch);
  library.impl("lamb_moments", &lamb_moments_torch);
  library.impl("lamb_move", &lamb_move_torch);
  library.impl("square_sums", &square_sums_torch);
  library.impl("pairwise_sum", &pairwise_sum_torch);
}

}  // namespace
}  // namespace lockstep::detail
