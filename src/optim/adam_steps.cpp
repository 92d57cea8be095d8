#include "optim/adam_steps.h"

#include <cmath>

namespace lockstep::detail {
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

}  // namespace lockstep::detail
