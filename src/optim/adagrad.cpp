// Adagrad: divides by the root of the sum of all squared gradients.
#include "optim/fused.h"
#include "optim/make_optimizer.h"

namespace lockstep::detail {
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
  const Optimizer::Group defaults{
      .pattern = "", .lr = options.lr, .initial_lr = options.lr, .weight_decay = options.weight_decay};
  auto grouping = group_parameters(parameters, defaults, options.groups);
  return std::make_unique<AdagradOptimizer>(std::move(parameters), std::move(grouping), options);
}

}  // namespace lockstep::detail
