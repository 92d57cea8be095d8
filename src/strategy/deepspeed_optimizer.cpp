#include "strategy/deepspeed_optimizer.h"

#include "deepspeed/read_config.h"

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
                 .weight_decay = s.weight_decay.value,
                 .bias_correction = s.bias_correction};
  return Adam{.lr = s.lr.value,
              .betas = array_of(s.betas),
              .eps = s.eps.value,
              .weight_decay = s.weight_decay.value,
              .bias_correction = s.bias_correction};
}

OptimizerFactory factory_of(const deepspeed::NoOptimizer&) { return {}; }
OptimizerFactory factory_of(const deepspeed::Adam& s) { return adam_of(s, s.adam_w_mode); }
OptimizerFactory factory_of(const deepspeed::AdamW& s) { return adam_of(s, true); }

OptimizerFactory factory_of(const deepspeed::Adagrad& s) {
  return Adagrad{.lr = s.lr.value,
                 .lr_decay = s.lr_decay,
                 .weight_decay = s.weight_decay.value,
                 .initial_accumulator_value = s.initial_accumulator_value,
                 .eps = s.eps.value};
}

OptimizerFactory factory_of(const deepspeed::Lion& s) {
  return Lion{.lr = s.lr.value, .betas = array_of(s.betas), .weight_decay = s.weight_decay.value};
}

OptimizerFactory factory_of(const deepspeed::Lamb& s) {
  return Lamb{.lr = s.lr.value,
              .betas = array_of(s.betas),
              .eps = s.eps.value,
              .weight_decay = s.weight_decay.value,
              .bias_correction = s.bias_correction,
              .eps_inside_sqrt = s.eps_inside_sqrt,
              .max_coeff = s.max_coeff,
              .min_coeff = s.min_coeff};
}

OptimizerFactory factory_of(const deepspeed::Sgd& s) {
  return SGD{.lr = s.lr.value,
             .momentum = s.momentum,
             .dampening = s.dampening,
             .weight_decay = s.weight_decay.value,
             .nesterov = s.nesterov,
             .maximize = s.maximize};
}

Muon muon_of(const deepspeed::Muon& s) {
  const auto& lr = s.lr.value;
  return Muon{.lr = s.muon_lr.value_or(lr.value_or(0.02)),
              .weight_decay = s.weight_decay.value,
              .momentum = s.momentum,
              .adam_lr = s.adam_lr.value_or(lr.value_or(3e-4)),
              .adam_betas = array_of(s.betas),
              .adam_eps = s.eps.value};
}

template <class Section>
OptimizerFactory factory_of(const Section& section, const deepspeed::ZeroConfig&) {
  return factory_of(section);
}
OptimizerFactory factory_of(const deepspeed::Muon& section, const deepspeed::ZeroConfig& zero) {
  auto options = muon_of(section);
  options.momentum_in_memory = zero.save_muon_momentum_buffer_in_memory;
  return options;
}

}  // namespace

std::optional<LRScheduler> scheduler_of(const DeepSpeedConfig& config) {
  deepspeed::require_usable(config, "scheduler");
  if (std::holds_alternative<deepspeed::NoScheduler>(config.scheduler)) return std::nullopt;
  return LRScheduler{.scheduler = DeepSpeedLR{config.scheduler}, .interval = Interval::kStep};
}

OptimizerFactory optimizer_of(const DeepSpeedConfig& config) {
  deepspeed::require_usable(config, "optimizer");
  return std::visit([&](const auto& section) { return factory_of(section, config.zero_optimization); },
                    config.optimizer);
}

bool has_section(const DeepSpeedConfig& config, const std::string& key) {
  if (config.refused.contains(key)) return true;
  if (key == "optimizer") return !std::holds_alternative<deepspeed::NoOptimizer>(config.optimizer);
  return !std::holds_alternative<deepspeed::NoScheduler>(config.scheduler);
}

}  // namespace lockstep::detail
