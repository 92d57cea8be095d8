#include <lockstep/optim/grad_norm.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include "optim/device_operators.h"
#include "optim/kernels.h"
#include "optim/make_optimizer.h"
#include "optim/segments.h"

namespace lockstep {
namespace {

constexpr double kClipEpsilon = 1e-6;  // torch.nn.utils.clip_grad_norm_'s

void check_gradient(const at::Tensor& gradient) {
  if (gradient.layout() != at::kStrided)
    detail::refuse("a gradient cannot be clipped", "dense tensors", c10::str(gradient.layout()));
}

void check_limit(const char* name, double limit) {
  detail::require(limit >= 0.0, name, limit, "a number >= 0");
}

std::vector<double> square_sums(const detail::Gradients& gradients, std::int64_t size) {
  constexpr std::int64_t kBlocksPerTask = 16;
  const auto blocks = (size + kGradNormBlock - 1) / kGradNormBlock;
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  const auto sum_blocks = [&, isa = detail::best_isa()](std::size_t task) {
    const auto first = static_cast<std::int64_t>(task) * kBlocksPerTask;
    for (auto block = first; block < std::min(blocks, first + kBlocksPerTask); ++block) {
      const auto begin = block * kGradNormBlock;
      const auto count = std::min(kGradNormBlock, size - begin);
      sums[static_cast<std::size_t>(block)] = detail::square_sum(gradients, begin, begin + count, isa);
    }
  };
  detail::parallel_for_each(static_cast<std::size_t>((blocks + kBlocksPerTask - 1) / kBlocksPerTask),
                            sum_blocks);
  return sums;
}

// Complex ones as pairs.
at::Tensor plain_reals(const at::Tensor& gradient) {
  const auto real = gradient.is_complex() ? at::view_as_real(gradient.detach().resolve_conj()) : gradient;
  return detail::readable(real.detach());
}

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const auto host = tensor.to(at::kCPU);
  const auto* const begin = host.const_data_ptr<double>();
  return {begin, begin + host.numel()};
}

[[noreturn]] void refuse_nonfinite(double norm) {
  throw Error("optim", {.what = "the norm of the gradients is not finite",
                        .expected = "a finite number, as error_if_nonfinite is set",
                        .got = std::isnan(norm) ? "nan" : std::to_string(norm),
                        .hint = "look at the batch's data and at the learning rate"});
}

// Calls use(gradient) for each gradient there is.
template <class Use>
void for_each_gradient(std::span<const at::Tensor> parameters, Use&& use) {
  at::NoGradGuard no_grad;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) use(parameter.grad());
  }
}

bool are_on_device(std::span<const at::Tensor> gradients) {
  return !gradients.empty() && !gradients.front().is_cpu();
}

at::Tensor device_norm(std::span<const at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> plain;
  for (const auto& gradient : gradients) {
    check_gradient(gradient);
    plain.push_back(plain_reals(gradient));
  }
  return detail::device_pairwise_sum(detail::device_square_sums(plain)).sqrt();
}

}  // namespace

std::vector<double> block_square_sums(const at::Tensor& gradient) {
  check_gradient(gradient);
  const auto plain = plain_reals(gradient);
  if (plain.is_cpu()) return square_sums(detail::gradients_in(plain), plain.numel());
  return numbers_of(detail::device_square_sums(plain));
}

std::vector<double> block_square_sums(std::span<const at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  std::vector<double> sums;
  std::vector<at::Tensor> on_device;
  for (const auto& gradient : gradients) {
    check_gradient(gradient);
    if (!gradient.is_cpu()) {
      on_device.push_back(plain_reals(gradient));
      continue;
    }
    const auto blocks = block_square_sums(gradient);
    sums.insert(sums.end(), blocks.begin(), blocks.end());
  }
  if (on_device.empty()) return sums;
  if (sums.empty()) return numbers_of(detail::device_square_sums(on_device));
  detail::refuse("gradients have no norm together", "all of them on one device",
                 "some on the CPU and others on " + on_device.front().device().str());
}

double pairwise_sum(std::span<const double> values) {
  if (values.empty()) return 0.0;
  std::vector<double> level(values.begin(), values.end());
  for (auto size = level.size(); size > 1; size = (size + 1) / 2) {
    for (std::size_t i = 0; i < size / 2; ++i) level[i] = level[2 * i] + level[2 * i + 1];
    if (size % 2 == 1) level[size / 2] = level[size - 1];
  }
  return level.front();
}

double grad_norm(std::span<const at::Tensor> parameters) {
  std::vector<at::Tensor> gradients;
  for_each_gradient(parameters, [&](const at::Tensor& gradient) { gradients.push_back(gradient); });
  if (!are_on_device(gradients)) return std::sqrt(pairwise_sum(block_square_sums(gradients)));
  return device_norm(gradients).item<double>();
}

double grad_norm(std::span<const at::Tensor> parameters, double norm_type) {
  detail::require(norm_type > 0.0, "norm_type", norm_type, "a number > 0, or infinity");
  if (norm_type == 2.0) return grad_norm(parameters);
  std::vector<double> norms;
  for_each_gradient(parameters, [&](const at::Tensor& gradient) {
    check_gradient(gradient);
    if (gradient.numel() == 0) return;  // its largest element is none
    const auto precise = gradient.to(gradient.is_complex() ? at::kComplexDouble : at::kDouble);
    norms.push_back(at::linalg_vector_norm(precise, norm_type).item<double>());
  });
  const auto all = at::tensor(norms, at::kDouble);
  return norms.empty() ? 0.0 : at::linalg_vector_norm(all, norm_type).item<double>();
}

double clip_coefficient(double norm, double max_norm, bool error_if_nonfinite) {
  check_limit("max_norm", max_norm);
  if (error_if_nonfinite && !std::isfinite(norm)) refuse_nonfinite(norm);
  const auto coefficient = max_norm / (norm + kClipEpsilon);
  return coefficient >= 1.0 ? 1.0 : coefficient;
}

double clip_grad_norm(std::span<const at::Tensor> parameters, double max_norm, double norm_type,
                      bool error_if_nonfinite) {
  check_limit("max_norm", max_norm);
  return scale_gradients_to(parameters, grad_norm(parameters, norm_type), max_norm, error_if_nonfinite);
}

Scalar clip_gradients_lazily(std::span<const at::Tensor> parameters, const GradientClip& clip) {
  if (clip.algorithm == ClipAlgorithm::kValue) {
    clip_grad_value(parameters, clip.value);
    return 0;
  }
  std::vector<at::Tensor> gradients;
  for_each_gradient(parameters, [&](const at::Tensor& gradient) { gradients.push_back(gradient); });
  if (clip.error_if_nonfinite || clip.norm_type != 2.0 || !are_on_device(gradients))
    return clip_grad_norm(parameters, clip.value, clip.norm_type, clip.error_if_nonfinite);
  check_limit("max_norm", clip.value);
  const auto norm = device_norm(gradients);
  detail::device_scale(gradients, detail::device_clip_coefficient(norm, clip.value));
  return Scalar::of_last_use(norm);
}

double scale_gradients_to(std::span<const at::Tensor> parameters, double norm, double max_norm,
                          bool error_if_nonfinite) {
  const auto coefficient = clip_coefficient(norm, max_norm, error_if_nonfinite);
  if (coefficient == 1.0) return norm;
  for_each_gradient(parameters, [&](const at::Tensor& gradient) { gradient.mul_(coefficient); });
  return norm;
}

void clip_grad_value(std::span<const at::Tensor> parameters, double limit) {
  check_limit("limit", limit);
  for_each_gradient(parameters, [](const at::Tensor& gradient) {
    check_gradient(gradient);
    if (gradient.is_complex())
      detail::refuse("values of a gradient cannot be clipped", "real numbers, which have an order",
                     c10::str(gradient.scalar_type()));
  });
  for_each_gradient(parameters, [&](const at::Tensor& gradient) { gradient.clamp_(-limit, limit); });
}

}  // namespace lockstep

namespace lockstep::detail {
namespace {

at::Tensor tensor_of(std::span<const double> values) {
  auto tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  std::ranges::copy(values, tensor.mutable_data_ptr<double>());
  return tensor;
}

at::Tensor square_sums_cpu(at::TensorList gradients) {
  std::vector<double> sums;
  for (const auto& gradient : gradients) {
    const auto own = block_square_sums(gradient);
    sums.insert(sums.end(), own.begin(), own.end());
  }
  return tensor_of(sums);
}

at::Tensor pairwise_sum_cpu(const at::Tensor& values) {
  const auto sum = pairwise_sum({values.const_data_ptr<double>(), static_cast<std::size_t>(values.numel())});
  return at::scalar_tensor(sum, at::kDouble);
}

TORCH_LIBRARY_FRAGMENT(lockstep, library) {
  library.def("square_sums(Tensor[] gradients) -> Tensor");
  library.def("pairwise_sum(Tensor values) -> Tensor");
}

TORCH_LIBRARY_IMPL(lockstep, CPU, library) {
  library.impl("square_sums", &square_sums_cpu);
  library.impl("pairwise_sum", &pairwise_sum_cpu);
}

template <class Signature>
c10::TypedOperatorHandle<Signature> norm_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

at::Tensor device_clip_coefficient(const at::Tensor& norm, double max_norm) {
  return (at::full_like(norm, max_norm) / (norm + kClipEpsilon)).clamp_max(1.0);
}

// One call for all of a type.
void device_scale(std::span<const at::Tensor> gradients, const at::Tensor& coefficient) {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const auto& gradient : gradients) by_type[gradient.scalar_type()].push_back(gradient);
  for (const auto& [type, alike] : by_type)
    at::_foreach_mul_(alike, coefficient.to(c10::toRealValueType(type)));
}

at::Tensor device_square_sums(at::TensorList gradients) {
  static const auto op = norm_operator<at::Tensor(at::TensorList)>("lockstep::square_sums");
  return op.call(gradients);
}

at::Tensor device_pairwise_sum(const at::Tensor& values) {
  static const auto op = norm_operator<at::Tensor(const at::Tensor&)>("lockstep::pairwise_sum");
  return op.call(values);
}

}  // namespace lockstep::detail
