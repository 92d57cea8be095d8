// Muon: orthogonal updates for hidden matrices, AdamW for the other parameters.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include <ATen/core/Tensor.h>

#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/torch.h>

#include "optim/adam_steps.h"
#include "optim/fused.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {
namespace {

// Makes a matrix nearly orthogonal.
struct NewtonSchulz {
  std::array<double, 3> coefficients;  ///< a, b, c of the step X <- a X + (b X X' + c (X X')^2) X
  int steps;
  double eps;  ///< least norm that the matrix is divided by
};

// The matrix with its singular values moved near 1, in bfloat16. Arithmetic of torch.optim.Muon.
at::Tensor orthogonalized(const at::Tensor& matrix, const NewtonSchulz& by) {
  const auto [a, b, c] = by.coefficients;
  const bool tall = matrix.size(0) > matrix.size(1);
  auto x = matrix.to(at::kBFloat16);
  if (tall) x = x.t();
  x = x / x.norm().clamp_min(by.eps);
  for (int step = 0; step < by.steps; ++step) {
    const auto gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}

using Shape = std::vector<std::int64_t>;

// Of the whole parameter. `exchange` knows it where ranks have pieces.
Shape shape_of(const NamedParameter& parameter, const PieceExchange* exchange) {
  if (!parameter.tensor.defined()) return {};
  return exchange ? exchange->shape_of(parameter.name) : parameter.tensor.sizes().vec();
}

// DeepSpeed's rule, except that it takes tensors of more dimensions for batches of matrices.
bool is_hidden_matrix(const NamedParameter& parameter, const PieceExchange* exchange) {
  if (shape_of(parameter, exchange).size() != 2) return false;
  auto name = parameter.name;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("embed") == std::string::npos && name.find("lm_head") == std::string::npos;
}

class MuonOptimizer final : public FusedOptimizer {
 public:
  MuonOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, const Muon& options,
                std::shared_ptr<PieceExchange> exchange)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg", "exp_avg_sq"}),
        options_(options),
        exchange_(std::move(exchange)) {}

  std::string_view name() const override { return "Muon"; }
  bool is_elementwise() const override { return false; }
  bool takes_pieces() const override { return exchange_ != nullptr; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    if (is_on_device())
      return update_on_device(grad_scale, [this](const DeviceBatch& batch, const Group& group) {
        is_of_matrices(group) ? step_on_device(batch, group)
                              : adam_step(batch, group, {.eps = options_.adam_eps});
      });
    auto slots = slots_with_gradient();
    const auto others = std::ranges::stable_partition(
        slots, [&](const Slot* slot) { return is_of_matrices(groups()[slot->group]); });
    as_one_step([&] {
      step_adam(std::span(others.begin(), others.end()), grad_scale);
      const std::span<Slot* const> matrices(slots.begin(), others.begin());
      if (exchange_) return step_pieces(matrices, grad_scale);
      change_state(matrices,
                   [&](Slot& slot) { move(slot, orthogonal(momentum_of(slot, grad_scale)).contiguous()); });
    });
  }

 private:
  static bool is_of_matrices(const Group& group) { return group.momentum.has_value(); }

  bool has_state(const Group&) const override { return true; }

  bool may_swap(const Group& group) const override {
    return !options_.momentum_in_memory || !is_of_matrices(group);
  }

  std::span<const std::string> kinds(const Group& group) const override {
    static const std::string kMomentum = "momentum_buffer";
    return is_of_matrices(group) ? std::span(&kMomentum, 1) : FusedOptimizer::kinds(group);
  }

  void adopt_parameters(std::size_t first) override { Optimizer::adopt_parameters(first); }

  void step_adam(std::span<Slot* const> slots, double grad_scale) {
    AdamSteps steps({.eps = options_.adam_eps}, groups(), grad_scale);
    update_parameters(slots, [&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      const auto& by = steps.at(slot.group, ++slot.steps());
      return AdamSegment<T>{param, grad, slot.buffer<T>(0), slot.buffer<T>(1), size, by};
    });
  }

  void step_pieces(std::span<Slot* const> slots, double grad_scale) {
    std::vector<at::Tensor> momenta(parameters().size());  // those in files come first, which differ by rank
    change_state(slots, [&](Slot& slot) {
      momenta[slot.parameter] = momentum_of(slot, grad_scale).to(at::kBFloat16);
    });
    std::vector<PieceExchange::Part> parts;
    for (const Slot* slot : slots)
      parts.push_back(part_of(parameter(*slot).name, std::move(momenta[slot->parameter])));
    exchange_->change_whole(parts, [this](const at::Tensor& whole) { return orthogonal(whole); });
    for (std::size_t i = 0; i < slots.size(); ++i) move(*slots[i], parts[i].elements);
  }

  // Sent in bfloat16, the type that the iterations begin with and end in.
  PieceExchange::Part part_of(const std::string& name, at::Tensor momentum) const {
    const auto shape = exchange_->shape_of(name);
    const auto elements = static_cast<double>(shape[0]) * static_cast<double>(shape[1]);
    return {.parameter = name,
            .elements = std::move(momentum),
            .cost = elements * static_cast<double>(std::min(shape[0], shape[1]))};
  }

  void step_on_device(const DeviceBatch& batch, const Group& group) {
    const auto momenta = momenta_of(batch, *group.momentum);
    std::vector<PieceExchange::Part> parts;
    for (std::size_t i = 0; exchange_ && i < momenta.size(); ++i)
      parts.push_back(part_of(batch.names[i], momenta[i].to(at::kBFloat16)));
    if (exchange_)
      exchange_->change_whole(parts, [this](const at::Tensor& whole) { return orthogonal(whole); });
    for (std::size_t i = 0; i < momenta.size(); ++i)
      move(batch, i, group, exchange_ ? parts[i].elements : orthogonal(momenta[i]).contiguous());
  }

  // A momentum stays what it was where gradients have overflowed: the step is left out.
  std::vector<at::Tensor> momenta_of(const DeviceBatch& batch, double momentum) const {
    std::vector<at::Tensor> momenta;
    for (std::size_t i = 0; i < batch.parameters.size(); ++i) {
      const at::Tensor& buffer = batch.buffers[0][i];
      auto grad = batch.gradients[i].to(buffer.scalar_type()).contiguous();
      if (batch.grad_scale) grad = grad * batch.grad_scale->to(buffer.scalar_type());
      const auto next = buffer.lerp(grad, 1.0 - momentum);
      momenta.push_back(options_.nesterov ? grad.lerp(next, momentum) : next);
      buffer.copy_(unless_left_out(batch, next, buffer));
    }
    if (batch.found_inf) at::_foreach_add_(batch.steps, 1.0 - *batch.found_inf);
    if (!batch.found_inf) at::_foreach_add_(batch.steps, 1);
    return momenta;
  }

  static at::Tensor unless_left_out(const DeviceBatch& batch, const at::Tensor& next, const at::Tensor& now) {
    return batch.found_inf ? at::where(*batch.found_inf != 0, now, next) : next;
  }

  // A learning rate that is on the device has the bits of one that is not.
  void move(const DeviceBatch& batch, std::size_t i, const Group& group, const at::Tensor& update) const {
    const at::Tensor& param = batch.parameters[i];
    const double factor = lr_factor(parameter_shape(batch, i));
    const auto step = update.to(param.scalar_type());
    const auto in_type = [&](const at::Tensor& number) { return number.to(param.scalar_type()); };
    const auto moved =
        batch.lr ? param * in_type(1.0 - *batch.lr * group.weight_decay) - step * in_type(*batch.lr * factor)
                 : param * (1.0 - group.lr * group.weight_decay) - step * (group.lr * factor);
    at::Tensor(param).copy_(unless_left_out(batch, moved, param));
  }

  Shape parameter_shape(const DeviceBatch& batch, std::size_t i) const {
    return exchange_ ? exchange_->shape_of(batch.names[i]) : batch.parameters[i].sizes().vec();
  }

  // Element by element, as all but orthogonal() is.
  at::Tensor momentum_of(Slot& slot, double grad_scale) const {
    const double momentum = *groups()[slot.group].momentum;
    const auto buffer = slot.tensor(0);
    auto grad = parameter(slot).tensor.grad().to(buffer.scalar_type()).contiguous();
    if (grad_scale != 1.0) grad = grad * grad_scale;
    ++slot.steps();
    buffer.lerp_(grad, 1.0 - momentum);
    return options_.nesterov ? grad.lerp(buffer, momentum) : buffer;
  }

  at::Tensor orthogonal(const at::Tensor& matrix) const {
    return orthogonalized(
        matrix, {.coefficients = options_.ns_coefficients, .steps = options_.ns_steps, .eps = options_.eps});
  }

  void move(const Slot& slot, const at::Tensor& update) const {
    const auto& group = groups()[slot.group];
    const auto param = parameter(slot).tensor;
    const auto values = param.to(slot.buffers[0].scalar_type());
    values.mul_(1.0 - group.lr * group.weight_decay)
        .add_(update, -group.lr * lr_factor(shape_of(parameter(slot), exchange_.get())));
    if (!values.is_same(param)) param.copy_(values);
  }

  double lr_factor(const Shape& shape) const {
    const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
    if (options_.adjust_lr_fn == AdjustLr::kMatchRmsAdamw) return 0.2 * std::sqrt(std::max(rows, columns));
    return std::sqrt(std::max(1.0, rows / columns));
  }

  Muon options_;
  std::shared_ptr<PieceExchange> exchange_;  // null where parameters are whole
};

// Splits each group into its matrices and its other parameters.
class MuonGroups {
 public:
  MuonGroups(const Muon& options, std::span<const NamedParameter> parameters, const PieceExchange* exchange)
      : options_(options), parameters_(parameters) {
    for (const auto& parameter : parameters) are_matrices_.push_back(is_hidden_matrix(parameter, exchange));
  }

  Grouping split(const Grouping& whole) {
    result_.group_of.resize(parameters_.size());
    for (std::size_t i = 0; i < whole.groups.size(); ++i) {
      const bool has_pattern = i < options_.groups.size();
      const auto overrides = has_pattern ? options_.groups[i] : ParameterGroup{.pattern = ""};
      add_part(whole, i, /*matrices=*/true, whole.groups[i]);
      add_part(whole, i, /*matrices=*/false, of_adam(whole.groups[i], overrides));
    }
    return std::move(result_);
  }

 private:
  Optimizer::Group of_adam(Optimizer::Group group, const ParameterGroup& overrides) const {
    group.lr = group.initial_lr = overrides.lr.value_or(options_.adam_lr);
    group.momentum.reset();
    group.betas = overrides.betas.value_or(options_.adam_betas);
    return group;
  }

  void add_part(const Grouping& whole, std::size_t index, bool matrices, Optimizer::Group group) {
    if (matrices) group.betas.reset();
    group.parameters.clear();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (whole.group_of[i] != index || are_matrices_[i] != matrices) continue;
      group.parameters.push_back(parameters_[i].name);
      result_.group_of[i] = result_.groups.size();
    }
    if (!group.parameters.empty()) result_.groups.push_back(std::move(group));
  }

  const Muon& options_;
  std::span<const NamedParameter> parameters_;
  std::vector<bool> are_matrices_;
  Grouping result_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Muon& options, std::vector<NamedParameter> parameters,
                                          std::shared_ptr<PieceExchange> exchange) {
  const auto whole = group_parameters(parameters, default_group(options), options.groups);
  auto grouping = MuonGroups(options, parameters, exchange.get()).split(whole);
  return std::make_unique<MuonOptimizer>(std::move(parameters), std::move(grouping), options,
                                         std::move(exchange));
}

}  // namespace lockstep::detail

namespace lockstep {

std::span<const OptionName<AdjustLr>> option_names(AdjustLr) {
  static constexpr OptionName<AdjustLr> kNames[] = {{"original", AdjustLr::kOriginal},
                                                    {"match_rms_adamw", AdjustLr::kMatchRmsAdamw}};
  return kNames;
}

}  // namespace lockstep
