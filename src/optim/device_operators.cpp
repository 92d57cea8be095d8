#include "optim/device_operators.h"

#include <algorithm>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "optim/kernels.h"
#include "optim/segments.h"

namespace lockstep::detail {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

constexpr const char* kBatch =
    "Tensor(a!)[] parameters, Tensor(b!)[] gradients, Tensor(c!)[] first, Tensor(d!)[] second, "
    "Tensor(e!)[] steps, Tensor? grad_scale, Tensor? found_inf, Tensor? lr_tensor, ";

TORCH_LIBRARY_FRAGMENT(lockstep, library) {
  const auto step = [&](const char* name, const char* settings) {
    library.def((std::string(name) + "(" + kBatch + settings + ") -> ()").c_str());
  };
  step("adam_step",
       "float lr, float beta1, float beta2, float eps, float weight_decay, bool decoupled, "
       "bool maximize, bool bias_correction");
  step("sgd_step",
       "float lr, float momentum, float dampening, float weight_decay, bool nesterov, bool maximize");
  step("adagrad_step", "float lr, float lr_decay, float eps, float weight_decay, bool maximize");
  step("lion_step", "float lr, float beta1, float beta2, float weight_decay");
  library.def((std::string("lamb_moments(") + kBatch +
               "float beta1, float beta2, float eps, bool eps_inside_sqrt, float weight_decay) -> Tensor")
                  .c_str());
  step("lamb_move",
       "Tensor squares, int[] blocks, float lr, float beta1, float beta2, float eps, bool eps_inside_sqrt, "
       "float weight_decay, bool bias_correction, float min_coeff, float max_coeff");
}

template <class Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

at::TensorList kind(const DeviceBatch& batch, std::size_t number) {
  return number < batch.buffers.size() ? at::TensorList(batch.buffers[number]) : at::TensorList();
}

// Kernels of the CPU: what kernels.h has, once the values that are on the device can be read.

struct Scalars {
  double grad_scale = 1.0;
  bool is_left_out = false;
};

Scalars read(const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  return {.grad_scale = grad_scale ? *grad_scale->const_data_ptr<double>() : 1.0,
          .is_left_out = found_inf && *found_inf->const_data_ptr<float>() != 0.0F};
}

// A captured step has a tensor in place of the number.
double lr_of(double lr, const OptionalTensor& lr_tensor) {
  return lr_tensor ? *lr_tensor->const_data_ptr<double>() : lr;
}

// Counts the step; returns the number of those before.
double count(const at::Tensor& step) { return (*step.mutable_data_ptr<float>())++; }

// Calls make(i, T* param, Gradients, T* first, T* second, size), which gives a segment, and updates all.
template <class T, class Make>
void update_batch(at::TensorList parameters, at::TensorList gradients, at::TensorList first,
                  at::TensorList second, const Make& make) {
  std::vector<at::Tensor> grads;
  std::vector<decltype(make(std::size_t{}, static_cast<T*>(nullptr),
                            Gradients(static_cast<const T*>(nullptr)), static_cast<T*>(nullptr),
                            static_cast<T*>(nullptr), std::int64_t{}))>
      segments;
  const auto at_or_null = [](at::TensorList list, std::size_t i) {
    return i < list.size() ? list[i].mutable_data_ptr<T>() : nullptr;
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    grads.push_back(readable(gradients[i]));
    segments.push_back(make(i, parameters[i].mutable_data_ptr<T>(), gradients_in(grads.back()),
                            at_or_null(first, i), at_or_null(second, i), parameters[i].numel()));
  }
  update_all(std::span(std::as_const(segments)));
}

template <class Body>
void with_type_of(at::TensorList parameters, const Body& body) {
  if (parameters.empty()) return;
  if (parameters.front().scalar_type() == at::kDouble) return body(double{});
  body(float{});
}

void adam_step_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                   at::TensorList exp_avg_sqs, at::TensorList steps, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr, double beta1,
                   double beta2, double eps, double weight_decay, bool decoupled, bool maximize,
                   bool bias_correction) {
  const auto scalars = read(grad_scale, found_inf);
  if (scalars.is_left_out) return;
  lr = lr_of(lr, lr_tensor);
  const std::vector<Optimizer::Group> groups{
      {.pattern = "", .lr = lr, .weight_decay = weight_decay, .betas = {{beta1, beta2}}}};
  AdamSteps by({.eps = eps, .decoupled = decoupled, .maximize = maximize, .bias_correction = bias_correction},
               groups, scalars.grad_scale);
  with_type_of(parameters, [&]<class T>(T) {
    update_batch<T>(parameters, gradients, exp_avgs, exp_avg_sqs,
                    [&](std::size_t i, T* param, Gradients grad, T* first, T* second, std::int64_t size) {
                      const auto step = static_cast<std::int64_t>(count(steps[i])) + 1;
                      return AdamSegment<T>{param, grad, first, second, size, by.at(0, step)};
                    });
  });
}

void sgd_step_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList buffers,
                  at::TensorList /*none*/, at::TensorList steps, const OptionalTensor& grad_scale,
                  const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr,
                  double momentum, double dampening, double weight_decay, bool nesterov, bool maximize) {
  const auto scalars = read(grad_scale, found_inf);
  if (scalars.is_left_out) return;
  lr = lr_of(lr, lr_tensor);
  with_type_of(parameters, [&]<class T>(T) {
    update_batch<T>(parameters, gradients, buffers, {},
                    [&](std::size_t i, T* param, Gradients grad, T* buffer, T*, std::int64_t size) {
                      const bool is_first = i < buffers.size() && count(steps[i]) == 0;
                      return SgdSegment<T>{param,
                                           grad,
                                           buffer,
                                           size,
                                           {.grad_scale = maximize ? -scalars.grad_scale : scalars.grad_scale,
                                            .l2 = weight_decay,
                                            .lr = lr,
                                            .momentum = is_first ? 0.0 : momentum,
                                            .gradient = is_first ? 1.0 : 1.0 - dampening,
                                            .lookahead = momentum,
                                            .nesterov = nesterov}};
                    });
  });
}

void adagrad_step_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList sums,
                      at::TensorList /*none*/, at::TensorList steps, const OptionalTensor& grad_scale,
                      const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr,
                      double lr_decay, double eps, double weight_decay, bool maximize) {
  const auto scalars = read(grad_scale, found_inf);
  if (scalars.is_left_out) return;
  lr = lr_of(lr, lr_tensor);
  with_type_of(parameters, [&]<class T>(T) {
    update_batch<T>(parameters, gradients, sums, {},
                    [&](std::size_t i, T* param, Gradients grad, T* sum, T*, std::int64_t size) {
                      return AdagradSegment<T>{
                          param,
                          grad,
                          sum,
                          size,
                          {.grad_scale = maximize ? -scalars.grad_scale : scalars.grad_scale,
                           .l2 = weight_decay,
                           .step_size = lr / (1.0 + lr_decay * count(steps[i])),
                           .eps = eps}};
                    });
  });
}

void lion_step_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                   at::TensorList /*none*/, at::TensorList steps, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf, const OptionalTensor& lr_tensor, double lr, double beta1,
                   double beta2, double weight_decay) {
  const auto scalars = read(grad_scale, found_inf);
  if (scalars.is_left_out) return;
  lr = lr_of(lr, lr_tensor);
  with_type_of(parameters, [&]<class T>(T) {
    update_batch<T>(parameters, gradients, exp_avgs, {},
                    [&](std::size_t i, T* param, Gradients grad, T* exp_avg, T*, std::int64_t size) {
                      count(steps[i]);
                      return LionSegment<T>{param,
                                            grad,
                                            exp_avg,
                                            size,
                                            {.grad_scale = scalars.grad_scale,
                                             .decay = 1.0 - lr * weight_decay,
                                             .beta1 = beta1,
                                             .beta2 = beta2,
                                             .lr = lr}};
                    });
  });
}

at::Tensor lamb_moments_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                            at::TensorList exp_avg_sqs, at::TensorList steps,
                            const OptionalTensor& grad_scale, const OptionalTensor& found_inf,
                            const OptionalTensor& /*lr_tensor*/, double beta1, double beta2, double eps,
                            bool eps_inside_sqrt, double weight_decay) {
  std::size_t count_of_blocks = 0;
  for (const auto& parameter : parameters) count_of_blocks += lamb_blocks(parameter.numel());
  std::vector<LambSquares> squares(count_of_blocks);
  const auto scalars = read(grad_scale, found_inf);
  const auto result = at::zeros({static_cast<std::int64_t>(count_of_blocks), 2}, at::kDouble);
  if (scalars.is_left_out) return result;
  const LambCoefficients by{.grad_scale = scalars.grad_scale,
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .eps = eps,
                            .eps_inside_sqrt = eps_inside_sqrt,
                            .weight_decay = weight_decay};
  with_type_of(parameters, [&]<class T>(T) {
    auto* next = squares.data();
    update_batch<T>(parameters, gradients, exp_avgs, exp_avg_sqs,
                    [&](std::size_t i, T* param, Gradients grad, T* first, T* second, std::int64_t size) {
                      count(steps[i]);
                      auto* const own = std::exchange(next, next + lamb_blocks(size));
                      return LambMoments<T>{{param, grad, first, second, size, by}, own, size};
                    });
  });
  auto* row = result.mutable_data_ptr<double>();
  for (const auto& block : squares) {
    *row++ = block.param;
    *row++ = block.update;
  }
  return result;
}

void lamb_move_cpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs,
                   at::TensorList exp_avg_sqs, at::TensorList steps, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf, const OptionalTensor& lr_tensor,
                   const at::Tensor& squares, at::IntArrayRef blocks, double lr, double beta1, double beta2,
                   double eps, bool eps_inside_sqrt, double weight_decay, bool bias_correction,
                   double min_coeff, double max_coeff) {
  if (read(grad_scale, found_inf).is_left_out) return;
  lr = lr_of(lr, lr_tensor);
  std::vector<LambSquares> all;
  const auto* const rows = squares.const_data_ptr<double>();
  for (std::int64_t i = 0; i < squares.size(0); ++i) all.push_back({rows[2 * i], rows[2 * i + 1]});
  with_type_of(parameters, [&]<class T>(T) {
    std::size_t begin = 0;
    update_batch<T>(
        parameters, gradients, exp_avgs, exp_avg_sqs,
        [&](std::size_t i, T* param, Gradients grad, T* first, T* second, std::int64_t size) {
          const auto of_it =
              std::span(std::as_const(all)).subspan(begin, static_cast<std::size_t>(blocks[i]));
          begin += of_it.size();
          const double step = *steps[i].const_data_ptr<float>();
          const LambCoefficients by{.beta1 = beta1,
                                    .beta2 = beta2,
                                    .eps = eps,
                                    .eps_inside_sqrt = eps_inside_sqrt,
                                    .weight_decay = weight_decay,
                                    .step_size = lamb_step_size(lr, beta1, beta2, step, bias_correction),
                                    .min_ratio = min_coeff,
                                    .max_ratio = max_coeff};
          return LambMove<T>{{param, grad, first, second, size, by}, trust_ratio(sum_of(of_it), by), size};
        });
  });
}

TORCH_LIBRARY_IMPL(lockstep, CPU, library) {
  library.impl("adam_step", &adam_step_cpu);
  library.impl("sgd_step", &sgd_step_cpu);
  library.impl("adagrad_step", &adagrad_step_cpu);
  library.impl("lion_step", &lion_step_cpu);
  library.impl("lamb_moments", &lamb_moments_cpu);
  library.impl("lamb_move", &lamb_move_cpu);
}

}  // namespace

void adam_step(const DeviceBatch& batch, const Optimizer::Group& group, const AdamSettings& settings) {
  static const auto op = operator_named<decltype(adam_step_cpu)>("lockstep::adam_step");
  const auto [beta1, beta2] = *group.betas;
  op.call(batch.parameters, batch.gradients, kind(batch, 0), kind(batch, 1), batch.steps, batch.grad_scale,
          batch.found_inf, batch.lr, group.lr, beta1, beta2, settings.eps, group.weight_decay,
          settings.decoupled, settings.maximize, settings.bias_correction);
}

void sgd_step(const DeviceBatch& batch, const Optimizer::Group& group, double dampening, bool nesterov,
              bool maximize) {
  static const auto op = operator_named<decltype(sgd_step_cpu)>("lockstep::sgd_step");
  op.call(batch.parameters, batch.gradients, kind(batch, 0), {}, batch.steps, batch.grad_scale,
          batch.found_inf, batch.lr, group.lr, *group.momentum, dampening, group.weight_decay, nesterov,
          maximize);
}

void adagrad_step(const DeviceBatch& batch, const Optimizer::Group& group, double lr_decay, double eps,
                  bool maximize) {
  static const auto op = operator_named<decltype(adagrad_step_cpu)>("lockstep::adagrad_step");
  op.call(batch.parameters, batch.gradients, kind(batch, 0), {}, batch.steps, batch.grad_scale,
          batch.found_inf, batch.lr, group.lr, lr_decay, eps, group.weight_decay, maximize);
}

void lion_step(const DeviceBatch& batch, const Optimizer::Group& group) {
  static const auto op = operator_named<decltype(lion_step_cpu)>("lockstep::lion_step");
  const auto [beta1, beta2] = *group.betas;
  op.call(batch.parameters, batch.gradients, kind(batch, 0), {}, batch.steps, batch.grad_scale,
          batch.found_inf, batch.lr, group.lr, beta1, beta2, group.weight_decay);
}

at::Tensor lamb_moments(const DeviceBatch& batch, const Optimizer::Group& group, const Lamb& options) {
  static const auto op = operator_named<decltype(lamb_moments_cpu)>("lockstep::lamb_moments");
  const auto [beta1, beta2] = *group.betas;
  return op.call(batch.parameters, batch.gradients, kind(batch, 0), kind(batch, 1), batch.steps,
                 batch.grad_scale, batch.found_inf, batch.lr, beta1, beta2, options.eps,
                 options.eps_inside_sqrt, group.weight_decay);
}

void lamb_move(const DeviceBatch& batch, const at::Tensor& squares, std::span<const std::int64_t> blocks,
               const Optimizer::Group& group, const Lamb& options) {
  static const auto op = operator_named<decltype(lamb_move_cpu)>("lockstep::lamb_move");
  const auto [beta1, beta2] = *group.betas;
  op.call(batch.parameters, batch.gradients, kind(batch, 0), kind(batch, 1), batch.steps, batch.grad_scale,
          batch.found_inf, batch.lr, squares, at::IntArrayRef(blocks.data(), blocks.size()), group.lr, beta1,
          beta2, options.eps, options.eps_inside_sqrt, group.weight_decay, options.bias_correction,
          options.min_coeff, options.max_coeff);
}

}  // namespace lockstep::detail
