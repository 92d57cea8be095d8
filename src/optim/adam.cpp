// Adam and AdamW: they differ in where weight decay enters.
#include <cmath>
#include <optional>

#include "optim/fused.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {
namespace {

struct AdamSettings {
  std::string_view name;
  double eps;
  bool decoupled;
  bool maximize;
};

class AdamOptimizer final : public FusedOptimizer {
 public:
  AdamOptimizer(std::vector<NamedParameter> parameters, Grouping grouping, AdamSettings settings)
      : FusedOptimizer(std::move(parameters), std::move(grouping), {"exp_avg", "exp_avg_sq"}),
        settings_(settings) {}

  std::string_view name() const override { return settings_.name; }

  void step(double grad_scale) override {
    at::NoGradGuard no_grad;
    Last last;
    update_parameters([&]<class T>(Slot& slot, T* param, const T* grad, std::int64_t size) {
      const auto& by = coefficients(slot, grad_scale, last);
      return AdamSegment<T>{param, grad, slot.buffer<T>(0), slot.buffer<T>(1), size, by};
    });
  }

 private:
  // Neighbours mostly share group and step count, and with them two powers and a root.
  struct Last {
    std::size_t group = 0;
    std::int64_t step = 0;
    AdamCoefficients by = {};
  };

  bool has_state(const Group&) const override { return true; }

  const AdamCoefficients& coefficients(const Slot& slot, double grad_scale, Last& last) const {
    const auto step = ++slot.steps();
    if (last.step != step || last.group != slot.group) {
      last = {slot.group, step, at_step(groups()[slot.group], step, grad_scale)};
    }
    return last.by;
  }

  AdamCoefficients at_step(const Group& group, std::int64_t step, double grad_scale) const {
    const auto [beta1, beta2] = *group.betas;
    return {.grad_scale = settings_.maximize ? -grad_scale : grad_scale,
            .l2 = settings_.decoupled ? 0.0 : group.weight_decay,
            .decay = settings_.decoupled ? 1.0 - group.lr * group.weight_decay : 1.0,
            .beta1 = beta1,
            .beta2 = beta2,
            .eps = settings_.eps,
            .step_size = group.lr / (1.0 - std::pow(beta1, static_cast<double>(step))),
            .root_bias2 = std::sqrt(1.0 - std::pow(beta2, static_cast<double>(step)))};
  }

  AdamSettings settings_;
};

template <class Options>
std::unique_ptr<Optimizer> make_adam(const Options& options, std::vector<NamedParameter> parameters,
                                     std::string_view name, bool decoupled) {
  const Optimizer::Group defaults{.pattern = "",
                                  .lr = options.lr,
                                  .initial_lr = options.lr,
                                  .weight_decay = options.weight_decay,
                                  .betas = options.betas};
  auto grouping = group_parameters(parameters, defaults, options.groups);
  const AdamSettings settings{
      .name = name, .eps = options.eps, .decoupled = decoupled, .maximize = options.maximize};
  return std::make_unique<AdamOptimizer>(std::move(parameters), std::move(grouping), settings);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Adam& options, std::vector<NamedParameter> parameters) {
  return make_adam(options, std::move(parameters), "Adam", /*decoupled=*/false);
}

std::unique_ptr<Optimizer> make_optimizer(const AdamW& options, std::vector<NamedParameter> parameters) {
  return make_adam(options, std::move(parameters), "AdamW", /*decoupled=*/true);
}

}  // namespace lockstep::detail
