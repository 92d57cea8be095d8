// With x^ = (x - mean) / sqrt(variance + eps), g = weight / sqrt(variance + eps) and sums over the N values
// that all ranks have of a channel, the gradient of the input is
//
//     dx = g * (dy - sum(dy) / N - x^ * sum(dy * x^) / N)
//
// LibTorch's kernels for evaluation give g * dy and both sums over the values of this rank; the sums are
// then added up over ranks. Those of this rank alone are the gradients of bias and weight, which are averaged
// with all others later on.
#include "parallel/sync_batch_norm/synced_normalize.h"

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include <lockstep/base/error.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

// Of the values of each channel; float64 on the CPU, of shape [channels].
struct BatchMoments {
  at::Tensor mean;      ///< 0 where there are no values
  at::Tensor variance;  ///< biased: the mean of the squared deviations; 0 where there are no values
  double count = 0;     ///< values per channel
};

using Doubles = std::span<double>;

Doubles doubles(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

// What travels: means, variances, count.
at::Tensor packed(const BatchMoments& moments) {
  return at::cat({moments.mean, moments.variance, at::full({1}, moments.count, at::kDouble)});
}

BatchMoments unpacked(const at::Tensor& row) {
  const auto channels = (row.numel() - 1) / 2;
  return {.mean = row.narrow(0, 0, channels),
          .variance = row.narrow(0, channels, channels),
          .count = row[-1].item<double>()};
}

void merge(BatchMoments& whole, const BatchMoments& part) {
  if (part.count == 0) return;
  const auto count = whole.count + part.count;
  const auto means = doubles(whole.mean), variances = doubles(whole.variance);
  const auto part_means = doubles(part.mean), part_variances = doubles(part.variance);
  const auto share = part.count / count, rest = whole.count / count;
  for (std::size_t c = 0; c < means.size(); ++c) {
    const auto distance = part_means[c] - means[c];
    means[c] += distance * share;
    variances[c] = variances[c] * rest + part_variances[c] * share + distance * distance * share * rest;
  }
  whole.count = count;
}

void move_towards(const at::Tensor& running, const at::Tensor& seen, double momentum) {
  if (!running.defined()) return;
  const at::NoGradGuard no_grad;
  running.copy_(running.to(at::kDouble) * (1 - momentum) + seen.to(running.device()) * momentum);
}

// Those of `input`, [N, C, ...] in float32 or float64.
BatchMoments local_moments(const at::Tensor& input) {
  const auto channels = input.size(1);
  if (input.numel() == 0) {
    return {.mean = at::zeros({channels}, at::kDouble), .variance = at::zeros({channels}, at::kDouble)};
  }
  const auto [mean, variance] = at::batch_norm_update_stats(input, {}, {}, 0);
  return {.mean = mean.to(at::kCPU, at::kDouble),
          .variance = variance.to(at::kCPU, at::kDouble),
          .count = static_cast<double>(input.numel() / channels)};
}

// Those of all ranks' values, with the same bits on every rank. Collective, blocking: one all_gather.
BatchMoments global_moments(const BatchMoments& local, const Communicator& comm) {
  const auto mine = packed(local);
  const auto all = at::empty({comm.size(), mine.numel()}, at::kDouble);
  comm.all_gather(all, mine);
  BatchMoments whole{.mean = at::zeros_like(local.mean), .variance = at::zeros_like(local.variance)};
  for (int rank = 0; rank < comm.size(); ++rank) merge(whole, unpacked(all[rank]));
  return whole;
}

// Moves running statistics towards `moments` as BatchNorm does: new = (1 - momentum) * old + momentum *
// seen, with the unbiased variance. Undefined ones stay so.
void update_running_statistics(const at::Tensor& running_mean, const at::Tensor& running_var,
                               const BatchMoments& moments, double momentum) {
  move_towards(running_mean, moments.mean, momentum);
  move_towards(running_var, moments.variance * (moments.count / (moments.count - 1)), momentum);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What backward needs to know of the forward pass beside tensors.
struct SyncedPass final : torch::CustomClassHolder {
  SyncedPass(Communicator group, std::string layer_name, const BatchNormCall& call)
      : comm(std::move(group)),
        layer(std::move(layer_name)),
        epsilon(call.epsilon),
        has_bias(call.bias.defined()) {}
  Communicator comm;
  std::string layer;
  double epsilon;
  bool has_bias;
  double count = 0;  // values per channel on all ranks
};

// Halves are computed in float32, as LibTorch does inside of its kernels.
at::ScalarType compute_dtype(const at::Tensor& input) {
  return c10::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

at::Tensor as_dtype(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

// Of a vector over channels, as a factor for tensors like `input`.
at::Tensor per_channel(const at::Tensor& vector, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return vector.to(input.options()).view(shape);
}

void check(const BatchMoments& moments, const std::string& layer) {
  if (moments.count != 1) return;
  throw ConfigError("parallel", {.what = "SyncBatchNorm of layer " + layer + " has nothing to normalise",
                                 .expected = "more than one value per channel on all ranks together",
                                 .got = "one"});
}

void refuse_second_gradients(const std::string& layer) {
  if (!at::GradMode::is_enabled()) return;
  throw ConfigError("parallel",
                    {.what = "gradients of gradients through SyncBatchNorm of layer " + layer,
                     .expected = "backward without create_graph",
                     .got = "create_graph",
                     .hint = "put the layer into evaluation mode, or train without SyncBatchNorm"});
}

// The three gradients of a rank's own values, where `mean` and `variance` are taken as constants.
struct LocalGradients {
  at::Tensor input, weight, bias;
};

LocalGradients local_gradients(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& mean, const at::Tensor& variance, double epsilon) {
  if (input.numel() == 0) return {at::zeros_like(input), at::zeros_like(mean), at::zeros_like(mean)};
  auto [of_input, of_weight, of_bias] = at::native_batch_norm_backward(
      gradient, input, weight, mean, variance, {}, {}, /*train=*/false, epsilon, {true, true, true});
  return {of_input, of_weight, of_bias};
}

// Takes from g * dy what mean and variance depend on the input. Collective.
void add_gradient_of_moments(LocalGradients& local, const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& mean, const at::Tensor& variance, const SyncedPass& pass) {
  const auto sums = at::cat({local.bias, local.weight}).to(at::kCPU, at::kDouble);
  pass.comm.all_reduce(sums);
  if (input.numel() == 0) return;
  const auto means = (sums / pass.count).to(mean.device()).chunk(2);
  const auto inverse_deviation = (variance.to(at::kDouble) + pass.epsilon).rsqrt();
  const auto gain = weight.defined() ? inverse_deviation * weight : inverse_deviation;
  const auto distance = input - per_channel(mean, input);
  local.input.addcmul_(distance, per_channel(gain * inverse_deviation * means[1], input), -1);
  local.input.sub_(per_channel(gain * means[0], input));
}

// Weight and bias are given for themselves as well, where the engine looks for what needs gradients.
struct SyncedNormalize : torch::autograd::Function<SyncedNormalize> {
  using OptionalTensor = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const OptionalTensor&,
                            const OptionalTensor&, const BatchNormCall& call,
                            const c10::intrusive_ptr<SyncedPass>& pass) {
    const auto dtype = compute_dtype(input);
    const auto values = input.to(dtype);
    const auto moments = global_moments(local_moments(values), pass->comm);
    check(moments, pass->layer);
    pass->count = moments.count;
    const auto mean = moments.mean.to(values.options()), variance = moments.variance.to(values.options());
    context->save_for_backward({input, call.weight, mean, variance});
    context->saved_data["pass"] = c10::IValue::make_capsule(pass);
    if (moments.count > 0) {
      update_running_statistics(call.running_mean, call.running_var, moments, call.momentum);
    }
    if (input.numel() == 0) return at::empty_like(input);
    const auto [output, unused_mean, unused_deviation] =
        at::native_batch_norm(values, as_dtype(call.weight, dtype), as_dtype(call.bias, dtype), mean,
                              variance, /*training=*/false, 0, call.epsilon);
    return output.to(input.scalar_type());
  }

  // The engine gives gradients the dtypes of what they belong to.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto pass = c10::static_intrusive_pointer_cast<SyncedPass>(context->saved_data["pass"].toCapsule());
    refuse_second_gradients(pass->layer);
    const auto saved = context->get_saved_variables();
    const auto dtype = compute_dtype(saved[0]);
    const auto input = saved[0].to(dtype), weight = as_dtype(saved[1], dtype);
    const auto &mean = saved[2], &variance = saved[3];
    auto local = local_gradients(gradients[0].to(dtype), input, weight, mean, variance, pass->epsilon);
    if (context->needs_input_grad(0)) {
      add_gradient_of_moments(local, input, weight, mean, variance, *pass);
    }
    if (!weight.defined()) local.weight = at::Tensor();
    if (!pass->has_bias) local.bias = at::Tensor();
    return {local.input, local.weight, local.bias, {}, {}};
  }
};

}  // namespace

at::Tensor synced_normalize(const BatchNormCall& call, const Communicator& comm, const std::string& layer) {
  return SyncedNormalize::apply(call.input, std::optional(call.weight), std::optional(call.bias), call,
                                c10::make_intrusive<SyncedPass>(comm, layer, call));
}

}  // namespace lockstep::detail
