#include "strategy/deepspeed_optimizer.h"

namespace lockstep::detail {
namespace {

std::array<double, 2> array_of(const deepspeed::AutoOr<deepspeed::Betas>& betas) {
  return {betas.value.beta1, betas.value.beta2};
}

// Adam's decay is decoupled unless it is told otherwise.
template <class Section>
OptimizerFactory adam_of(const Section& s, bool is_decoupled) {
  if (is_decoupled)
    return AdamW{.lr = s.lr.value,
                 .betas = array_of(s.betas),
                 .eps = s.eps.value,
                 .weight_decay = s.weight_decay.value};
  return Adam{
      .lr = s.lr.value, .betas = array_of(s.betas), .eps = s.eps.value, .weight_decay = s.weight_decay.value};
}

OptimizerFactory factory_of(const deepspeed::NoOptimizer&) { return {}; }
OptimizerFactory factory_of(const deepspeed::Adam& s) { return adam_of(s, s.adam_w_mode); }
OptimizerFactory factory_of(const deepspeed::AdamW& s) { return adam_of(s, true); }

OptimizerFactory factory_of(const deepspeed::Adagrad&) { return {}; }

OptimizerFactory factory_of(const deepspeed::Lion&) { return {}; }

OptimizerFactory factory_of(const deepspeed::Lamb&) { return {}; }

OptimizerFactory factory_of(const deepspeed::Sgd& s) {
  return SGD{.lr = s.lr.value,
             .momentum = s.momentum,
             .dampening = s.dampening,
             .weight_decay = s.weight_decay.value,
             .nesterov = s.nesterov,
             .maximize = s.maximize};
}

OptimizerFactory factory_of(const deepspeed::Muon&) { return {}; }

}  // namespace

std::optional<LRScheduler> scheduler_of(const DeepSpeedConfig& config) {
  if (std::holds_alternative<deepspeed::NoScheduler>(config.scheduler)) return std::nullopt;
  return LRScheduler{.scheduler = DeepSpeedLR{config.scheduler}, .interval = Interval::kStep};
}

Optimizers optimizers_of(const DeepSpeedConfig& config) {
  Optimizers found{.optimizer =
                       std::visit([](const auto& section) { return factory_of(section); }, config.optimizer)};
  if (found.optimizer) found.lr_scheduler = scheduler_of(config);
  return found;
}

}  // namespace lockstep::detail
