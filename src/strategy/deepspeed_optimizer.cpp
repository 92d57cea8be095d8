// The optimizer and the schedule that DeepSpeed's JSON asks for, once what it leaves open is filled.
#include "strategy/deepspeed_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "base/number_locale.h"
#include "deepspeed/read_config.h"

namespace lockstep::detail {
namespace {

constexpr const char* kDefault = "DeepSpeed's default";
constexpr const char* kRate = "optimizer.params.lr";
constexpr const char* kWarmup = "scheduler.params.warmup_num_steps";
constexpr const char* kTotal = "scheduler.params.total_num_steps";

void add(FilledConfig& filled, const std::string& key, const std::string& source) {
  filled.fillings.push_back({key, deepspeed::value_at(filled.config, key), source});
}

template <class T>
void fill_by_default(FilledConfig& filled, const std::string& key, deepspeed::AutoOr<T>& setting) {
  if (!setting.is_auto) return;
  setting.fill(T(setting.value));
  add(filled, key, kDefault);
}

template <class T>
void fill_rate(FilledConfig& filled, deepspeed::AutoOr<T>& lr, const std::optional<double>& learning_rate) {
  if (!lr.is_auto) return;
  lr.fill(learning_rate ? T(*learning_rate) : lr.value);
  add(filled, kRate,
      learning_rate ? "learning_rate of the strategy"
                    : std::string(kDefault) + ", as learning_rate of the strategy is not given");
}

[[noreturn]] void refuse_unknown(const DeepSpeedConfig& config, const std::string& key,
                                 const std::string& expected) {
  throw ConfigError("deepspeed",
                    {.what = config.named(key) + " is left to the Trainer, which does not know it",
                     .expected = expected,
                     .got = "\"auto\""});
}

struct Warmup {
  std::int64_t steps = 0;
  std::string source;
};

// Rounded up, as in HuggingFace's Trainer, where a number of steps goes before a ratio as well.
Warmup warmup_of(const DeepSpeedConfig& config, const DeepSpeed& arguments,
                 std::optional<std::int64_t> steps) {
  if (arguments.warmup_steps > 0) return {arguments.warmup_steps, "warmup_steps of the strategy"};
  if (arguments.warmup_ratio == 0) return {0, "as the strategy has no warmup_steps and no warmup_ratio"};
  if (!steps)
    refuse_unknown(config, kWarmup, "warmup_steps, or a run whose length is known for warmup_ratio");
  const auto share = std::ceil(static_cast<double>(*steps) * arguments.warmup_ratio);
  return {static_cast<std::int64_t>(share), "warmup_ratio of the strategy, " +
                                                number_text(arguments.warmup_ratio) + " of " +
                                                std::to_string(*steps) + " steps"};
}

// DeepSpeed takes positive numbers only, and 1 for 2; so its integrations give it 1 where there is no
// warm-up.
void fill_warmup(FilledConfig& filled, deepspeed::AutoOr<std::int64_t>& setting, const DeepSpeed& arguments,
                 std::optional<std::int64_t> steps) {
  if (!setting.is_auto) return;
  const auto warmup = warmup_of(filled.config, arguments, steps);
  setting.fill(std::max<std::int64_t>(warmup.steps, 1));
  filled.fillings.push_back({kWarmup, std::to_string(warmup.steps), warmup.source});
}

template <class Section>
void fill_section(FilledConfig& filled, Section& section, const DeepSpeed& arguments,
                  std::optional<std::int64_t> steps) {
  const std::string params = "scheduler.params.";
  if constexpr (requires { section.total_num_steps; }) {
    if (section.total_num_steps.is_auto) {
      if (!steps) refuse_unknown(filled.config, kTotal, "a number of steps, or a run whose length is known");
      section.total_num_steps.fill(steps);
      add(filled, kTotal, "the steps of this run");
    }
  }
  if constexpr (requires { section.warmup_num_steps; })
    fill_warmup(filled, section.warmup_num_steps, arguments, steps);
  if constexpr (requires { section.warmup_min_lr; })
    fill_by_default(filled, params + "warmup_min_lr", section.warmup_min_lr);
  if constexpr (requires { section.warmup_max_lr; }) {
    if (section.warmup_max_lr.is_auto) {
      section.warmup_max_lr.fill({});
      filled.fillings.push_back({params + "warmup_max_lr", "lr", "that of each group of the optimizer"});
    }
  }
}

void require_taker(const DeepSpeedConfig& used, const std::string& argument, const std::string& value,
                   const std::string& key) {
  if (used.autos.contains(key)) return;
  const auto found = deepspeed::value_at(used, key);
  const NumbersWithPoint scope;
  if (!found.empty() && std::strtod(found.c_str(), nullptr) == std::strtod(value.c_str(), nullptr)) return;
  throw ConfigError("deepspeed", {.what = "strategy." + argument + " has nothing to fill in",
                                  .expected = "\"auto\" for " + used.named(key) + " in the file, and its use",
                                  .got = argument + " = " + value + " and " + key + " = " +
                                         (found.empty() ? "none" : found)});
}

}  // namespace

void fill_optimizer(FilledConfig& filled, const DeepSpeed& arguments) {
  const auto fill = [&](auto& section) {
    const std::string params = "optimizer.params.";
    if constexpr (requires { section.lr; }) fill_rate(filled, section.lr, arguments.learning_rate);
    if constexpr (requires { section.betas; }) fill_by_default(filled, params + "betas", section.betas);
    if constexpr (requires { section.eps; }) fill_by_default(filled, params + "eps", section.eps);
    if constexpr (requires { section.weight_decay; })
      fill_by_default(filled, params + "weight_decay", section.weight_decay);
  };
  std::visit(fill, filled.config.optimizer);
}

void fill_scheduler(FilledConfig& filled, const DeepSpeed& arguments, std::optional<std::int64_t> steps) {
  std::visit([&](auto& section) { fill_section(filled, section, arguments, steps); },
             filled.config.scheduler);
}

void require_takers(const DeepSpeedConfig& used, const DeepSpeed& arguments) {
  if (arguments.learning_rate)
    require_taker(used, "learning_rate", number_text(*arguments.learning_rate), kRate);
  if (arguments.warmup_steps > 0)
    require_taker(used, "warmup_steps", std::to_string(arguments.warmup_steps), kWarmup);
  else if (arguments.warmup_ratio > 0)
    require_taker(used, "warmup_ratio", number_text(arguments.warmup_ratio), kWarmup);
}

std::string sentence_of(const std::vector<Filling>& fillings, const DeepSpeedConfig& config) {
  std::string sentence;
  for (const auto& [key, value, source] : fillings)
    sentence += (sentence.empty() ? "" : "; ") + config.named(key) + " is " + value + ", " + source;
  return sentence;
}

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
