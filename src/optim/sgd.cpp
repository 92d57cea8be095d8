// Stochastic gradient descent. Its step count is the number of momentum updates.
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
      T* buffer = has_state(group) ? slot.buffer<T>(0) : nullptr;
      const bool first = buffer != nullptr && slot.steps()++ == 0;
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
  const Optimizer::Group defaults{.pattern = "",
                                  .lr = options.lr,
                                  .initial_lr = options.lr,
                                  .weight_decay = options.weight_decay,
                                  .momentum = options.momentum};
  auto grouping = group_parameters(parameters, defaults, options.groups);
  return std::make_unique<SgdOptimizer>(std::move(parameters), std::move(grouping), options);
}

}  // namespace lockstep::detail
