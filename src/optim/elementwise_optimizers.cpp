// The optimizers that update each element by itself: SGD, whose step count is the number of momentum updates;
// Adam and AdamW; Adagrad, which divides by the root of the sum of all squared gradients; Lion, whose step is
// the sign of a momentum.
#include <cmath>

#include "optim/adam_steps.h"
#include "optim/fused.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {
namespace {

class SgdOptimizer final : public FusedOptimizer {
 public:
  SgdOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, const SGD& options)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"momentum_buffer"}),
        dampening_(options.dampening),
        nesterov_(options.nesterov),
        maximize_(options.maximize) {}

  std::string_view name() const override { return "SGD"; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    if (is_on_device())
      return update_on_device(grad_scale, [&](const DeviceBatch& batch, const Group& group) {
        sgd_step(batch, group, dampening_, nesterov_, maximize_);
      });
    update_parameters([&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      const auto& group = groups()[slot.group];
      const bool has_buffer = has_state(group);  // of no elements it is a null pointer
      T* buffer = has_buffer ? slot.buffer<T>(0) : nullptr;
      const bool first = has_buffer && slot.steps()++ == 0;
      return SgdSegment<T>{param, grad, buffer, size, coefficients(group, grad_scale, first)};
    });
  }

 private:
  bool has_state(const Group& group) const override { return *group.momentum != 0.0; }

  // The first gradient fills the buffer undampened, as in torch.
  SgdCoefficients coefficients(const Group& group, double grad_scale, bool first) const {
    return {.grad_scale = maximize_ ? -grad_scale : grad_scale,
            .l2 = group.weight_decay,
            .lr = group.lr,
            .momentum = first ? 0.0 : *group.momentum,
            .gradient = first ? 1.0 : 1.0 - dampening_,
            .lookahead = *group.momentum,
            .nesterov = nesterov_};
  }

  double dampening_;
  bool nesterov_;
  bool maximize_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const SGD& options, std::vector<NamedParameter> parameters) {
  auto grouping = group_parameters(parameters, default_group(options), options.groups);
  return std::make_unique<SgdOptimizer>(std::move(parameters), std::move(grouping), options);
}

namespace {

AdamCoefficients coefficients(const AdamSettings& settings, const Optimizer::Group& group, std::int64_t step,
                              double grad_scale) {
  const auto [beta1, beta2] = *group.betas;
  // The share of a mean that gradients make up, which begins at zero.
  const auto share = [&](double beta) {
    return settings.bias_correction ? 1.0 - std::pow(beta, static_cast<double>(step)) : 1.0;
  };
  return {.grad_scale = settings.maximize ? -grad_scale : grad_scale,
          .l2 = settings.decoupled ? 0.0 : group.weight_decay,
          .decay = settings.decoupled ? 1.0 - group.lr * group.weight_decay : 1.0,
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = settings.eps,
          .step_size = group.lr / share(beta1),
          .root_bias2 = std::sqrt(share(beta2))};
}

}  // namespace

const AdamCoefficients& AdamSteps::at(std::size_t group, std::int64_t step) {
  if (last_step_ != step || last_group_ != group) {
    last_ = coefficients(settings_, groups_[group], step, grad_scale_);
    last_group_ = group;
    last_step_ = step;
  }
  return last_;
}

namespace {

class AdamOptimizer final : public FusedOptimizer {
 public:
  AdamOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, std::string_view name,
                const AdamSettings& settings)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg", "exp_avg_sq"}),
        name_(name),
        settings_(settings) {}

  std::string_view name() const override { return name_; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    if (is_on_device())
      return update_on_device(grad_scale, [&](const DeviceBatch& batch, const Group& group) {
        adam_step(batch, group, settings_);
      });
    AdamSteps steps(settings_, groups(), grad_scale);
    update_parameters([&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      const auto& by = steps.at(slot.group, ++slot.steps());
      return AdamSegment<T>{param, grad, slot.buffer<T>(0), slot.buffer<T>(1), size, by};
    });
  }

 private:
  bool has_state(const Group&) const override { return true; }

  std::string_view name_;
  AdamSettings settings_;
};

template <class Options>
std::unique_ptr<Optimizer> make_adam(const Options& options, std::vector<NamedParameter> parameters,
                                     std::string_view name, bool decoupled) {
  auto grouping = group_parameters(parameters, default_group(options), options.groups);
  const AdamSettings settings{.eps = options.eps,
                              .decoupled = decoupled,
                              .maximize = options.maximize,
                              .bias_correction = options.bias_correction};
  return std::make_unique<AdamOptimizer>(std::move(parameters), std::move(grouping), name, settings);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adam& options, std::vector<NamedParameter> parameters) {
  return make_adam(options, std::move(parameters), "Adam", /*decoupled=*/false);
}

std::unique_ptr<Optimizer> make_optimizer(const AdamW& options, std::vector<NamedParameter> parameters) {
  return make_adam(options, std::move(parameters), "AdamW", /*decoupled=*/true);
}

namespace {

class AdagradOptimizer final : public FusedOptimizer {
 public:
  AdagradOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, const Adagrad& options)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"sum"}), options_(options) {}

  std::string_view name() const override { return "Adagrad"; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    if (is_on_device())
      return update_on_device(grad_scale, [&](const DeviceBatch& batch, const Group& group) {
        adagrad_step(batch, group, options_.lr_decay, options_.eps, options_.maximize);
      });
    update_parameters([&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      const auto by = coefficients(groups()[slot.group], slot.steps()++, grad_scale);
      return AdagradSegment<T>{param, grad, slot.buffer<T>(0), size, by};
    });
  }

 private:
  bool has_state(const Group&) const override { return true; }
  double initial_state() const override { return options_.initial_accumulator_value; }

  AdagradCoefficients coefficients(const Group& group, std::int64_t steps_before, double grad_scale) const {
    return {.grad_scale = options_.maximize ? -grad_scale : grad_scale,
            .l2 = group.weight_decay,
            .step_size = group.lr / (1.0 + options_.lr_decay * static_cast<double>(steps_before)),
            .eps = options_.eps};
  }

  Adagrad options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adagrad& options, std::vector<NamedParameter> parameters) {
  auto grouping = group_parameters(parameters, default_group(options), options.groups);
  return std::make_unique<AdagradOptimizer>(std::move(parameters), std::move(grouping), options);
}

namespace {

class LionOptimizer final : public FusedOptimizer {
 public:
  LionOptimizer(std::vector<NamedParameter> parameters, Grouping grouping)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg"}) {}

  std::string_view name() const override { return "Lion"; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    if (is_on_device()) return update_on_device(grad_scale, lion_step);
    update_parameters([&]<class T>(Slot& slot, T* param, Gradients grad, std::int64_t size) {
      ++slot.steps();
      const auto by = coefficients(groups()[slot.group], grad_scale);
      return LionSegment<T>{param, grad, slot.buffer<T>(0), size, by};
    });
  }

 private:
  bool has_state(const Group&) const override { return true; }

  static LionCoefficients coefficients(const Group& group, double grad_scale) {
    return {.grad_scale = grad_scale,
            .decay = 1.0 - group.lr * group.weight_decay,
            .beta1 = (*group.betas)[0],
            .beta2 = (*group.betas)[1],
            .lr = group.lr};
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Lion& options, std::vector<NamedParameter> parameters) {
  auto grouping = group_parameters(parameters, default_group(options), options.groups);
  return std::make_unique<LionOptimizer>(std::move(parameters), std::move(grouping));
}

}  // namespace lockstep::detail
