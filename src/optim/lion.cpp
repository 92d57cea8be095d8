// Lion: the sign of a momentum is the step.
#include "optim/fused.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {
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
  const Optimizer::Group defaults{.pattern = "",
                                  .lr = options.lr,
                                  .initial_lr = options.lr,
                                  .weight_decay = options.weight_decay,
                                  .betas = options.betas};
  auto grouping = group_parameters(parameters, defaults, options.groups);
  return std::make_unique<LionOptimizer>(std::move(parameters), std::move(grouping));
}

}  // namespace lockstep::detail
