// Muon: orthogonal updates for hidden matrices, AdamW for the other parameters.
#include <algorithm>
#include <cctype>
#include <cmath>

#include <lockstep/torch.h>

#include "optim/adam_steps.h"
#include "optim/fused.h"
#include "optim/make_optimizer.h"
#include "optim/newton_schulz.h"
#include "optim/refuse.h"

namespace lockstep::detail {
namespace {

// DeepSpeed's rule, except that it takes tensors of more dimensions for batches of matrices.
bool is_hidden_matrix(const NamedParameter& parameter) {
  if (!parameter.tensor.defined() || parameter.tensor.dim() != 2) return false;
  auto name = parameter.name;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("embed") == std::string::npos && name.find("lm_head") == std::string::npos;
}

class MuonOptimizer final : public FusedOptimizer {
 public:
  MuonOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, const Muon& options)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg", "exp_avg_sq"}),
        options_(options) {}

  std::string_view name() const override { return "Muon"; }
  bool is_elementwise() const override { return false; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    auto slots = slots_with_gradient();
    const auto others = std::ranges::stable_partition(
        slots, [&](const Slot* slot) { return is_of_matrices(groups()[slot->group]); });
    step_adam(std::span(others.begin(), others.end()), grad_scale);
    for (Slot* slot : std::span(slots.begin(), others.begin())) step_matrix(*slot, grad_scale);
  }

 private:
  static bool is_of_matrices(const Group& group) { return group.momentum.has_value(); }

  bool has_state(const Group&) const override { return true; }

  std::span<const std::string> kinds(const Group& group) const override {
    static const std::string kMomentum = "momentum_buffer";
    return is_of_matrices(group) ? std::span(&kMomentum, 1) : FusedOptimizer::kinds(group);
  }

  void adopt_parameters(std::size_t first) override { Optimizer::adopt_parameters(first); }

  void step_adam(std::span<Slot* const> slots, double grad_scale) {
    AdamSteps steps({.eps = options_.adam_eps}, groups(), grad_scale);
    update_parameters(slots, [&]<class T>(Slot& slot, T* param, const T* grad, std::int64_t size) {
      const auto& by = steps.at(slot.group, ++slot.steps());
      return AdamSegment<T>{param, grad, slot.buffer<T>(0), slot.buffer<T>(1), size, by};
    });
  }

  void step_matrix(Slot& slot, double grad_scale) {
    const auto& group = groups()[slot.group];
    const auto param = parameter(slot).tensor;
    const auto values = param.to(slot.buffers[0].scalar_type());
    ++slot.steps();
    values.mul_(1.0 - group.lr * group.weight_decay).add_(update_of(slot, grad_scale), -adjusted_lr(slot));
    if (!values.is_same(param)) param.copy_(values);
  }

  at::Tensor update_of(const Slot& slot, double grad_scale) const {
    const double momentum = *groups()[slot.group].momentum;
    const auto& buffer = slot.buffers[0];
    auto grad = parameter(slot).tensor.grad().to(buffer.scalar_type()).contiguous();
    if (grad_scale != 1.0) grad = grad * grad_scale;
    buffer.lerp_(grad, 1.0 - momentum);
    return orthogonalized(
        options_.nesterov ? grad.lerp(buffer, momentum) : buffer,
        {.coefficients = options_.ns_coefficients, .steps = options_.ns_steps, .eps = options_.eps});
  }

  double adjusted_lr(const Slot& slot) const {
    const double lr = groups()[slot.group].lr;
    const auto rows = static_cast<double>(slot.buffers[0].size(0));
    const auto columns = static_cast<double>(slot.buffers[0].size(1));
    if (options_.adjust_lr_fn == AdjustLr::kMatchRmsAdamw)
      return lr * 0.2 * std::sqrt(std::max(rows, columns));
    return lr * std::sqrt(std::max(1.0, rows / columns));
  }

  Muon options_;
};

// Splits each group into its matrices and its other parameters.
class MuonGroups {
 public:
  MuonGroups(const Muon& options, std::span<const NamedParameter> parameters)
      : options_(options), parameters_(parameters) {}

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
      if (whole.group_of[i] != index || is_hidden_matrix(parameters_[i]) != matrices) continue;
      group.parameters.push_back(parameters_[i].name);
      result_.group_of[i] = result_.groups.size();
    }
    if (!group.parameters.empty()) result_.groups.push_back(std::move(group));
  }

  const Muon& options_;
  std::span<const NamedParameter> parameters_;
  Grouping result_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Muon& options, std::vector<NamedParameter> parameters) {
  const Optimizer::Group defaults{.pattern = "",
                                  .lr = options.lr,
                                  .initial_lr = options.lr,
                                  .weight_decay = options.weight_decay,
                                  .momentum = options.momentum};
  const auto whole = group_parameters(parameters, defaults, options.groups);
  auto grouping = MuonGroups(options, parameters).split(whole);
  return std::make_unique<MuonOptimizer>(std::move(parameters), std::move(grouping), options);
}

}  // namespace lockstep::detail
