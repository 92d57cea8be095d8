#include "strategy/deepspeed_optimizer.h"

#include <lockstep/base/error.h>

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

[[noreturn]] void refuse_auto(const DeepSpeedConfig& config, const std::string& key,
                              const std::string& expected) {
  throw ConfigError("deepspeed",
                    {.what = config.named(key) + " is left to the Trainer, which does not know it",
                     .expected = expected,
                     .got = "\"auto\""});
}

// What is "auto" beside these is DeepSpeed's default.
template <class Section>
void fill(const DeepSpeedConfig& config, Section& section, std::optional<std::int64_t> steps) {
  const std::string params = "scheduler.params.";
  if constexpr (requires { section.warmup_num_steps; }) {
    if (section.warmup_num_steps.is_auto)
      refuse_auto(config, params + "warmup_num_steps", "a number of steps");
  }
  if constexpr (requires { section.warmup_max_lr; }) section.warmup_max_lr.fill({});  // the groups' own rates
  if constexpr (requires { section.total_num_steps; }) {
    section.total_num_steps.fill(steps);
    if (!section.total_num_steps.value)
      refuse_auto(config, params + "total_num_steps", "a number of steps, or a run whose length is known");
  }
}

void check_learning_rate(const DeepSpeedConfig& config) {
  const bool is_auto = std::visit(
      [](const auto& section) {
        if constexpr (requires { section.lr; }) return section.lr.is_auto;
        return false;
      },
      config.optimizer);
  if (is_auto)
    refuse_auto(config, "optimizer.params.lr", "a number, or an optimizer of configure_optimizers()");
}

}  // namespace

std::optional<LRScheduler> scheduler_of(const DeepSpeedConfig& config, std::optional<std::int64_t> steps) {
  if (std::holds_alternative<deepspeed::NoScheduler>(config.scheduler)) return std::nullopt;
  auto scheduler = config.scheduler;
  std::visit([&](auto& section) { fill(config, section, steps); }, scheduler);
  return LRScheduler{.scheduler = DeepSpeedLR{std::move(scheduler)}, .interval = Interval::kStep};
}

Optimizers optimizers_of(const DeepSpeedConfig& config, std::optional<std::int64_t> steps) {
  Optimizers found{.optimizer =
                       std::visit([&](const auto& s) { return factory_of(s, config.zero_optimization); },
                                  config.optimizer)};
  if (!found.optimizer) return found;
  check_learning_rate(config);
  found.lr_scheduler = scheduler_of(config, steps);
  return found;
}

}  // namespace lockstep::detail
