#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include <lockstep/optim/scheduler_options.h>

#include "optim/make_optimizer.h"

namespace lockstep::detail {
namespace {

// How many of the ascending milestones are <= k.
std::size_t passed(const std::vector<std::int64_t>& milestones, std::int64_t k) {
  return static_cast<std::size_t>(std::upper_bound(milestones.begin(), milestones.end(), k) -
                                  milestones.begin());
}

double anneal(double from, double to, double share, bool cosine) {
  if (!cosine) return from + (to - from) * share;
  return to + (from - to) / 2.0 * (1.0 + std::cos(std::numbers::pi * share));
}

deepspeed::WarmupType type_of(const std::string& type) {
  return type == "log" ? deepspeed::WarmupType::kLog : deepspeed::WarmupType::kLinear;
}

Rates at(const ConstantLR& s, std::int64_t k, double base) {
  return {k < s.total_iters ? base * s.factor : base};
}

Rates at(const LinearLR& s, std::int64_t k, double base) {
  const auto share = static_cast<double>(std::min(k, s.total_iters)) / static_cast<double>(s.total_iters);
  return {base * (s.start_factor + (s.end_factor - s.start_factor) * share)};
}

Rates at(const ExponentialLR& s, std::int64_t k, double base) {
  return {base * std::pow(s.gamma, static_cast<double>(k))};
}

Rates at(const StepLR& s, std::int64_t k, double base) {
  return {base * std::pow(s.gamma, static_cast<double>(k / s.step_size))};
}

Rates at(const MultiStepLR& s, std::int64_t k, double base) {
  return {base * std::pow(s.gamma, static_cast<double>(passed(s.milestones, k)))};
}

Rates at(const CosineAnnealingLR& s, std::int64_t k, double base) {
  const auto share = static_cast<double>(k) / static_cast<double>(s.T_max);
  return {s.eta_min + (base - s.eta_min) * (1.0 + std::cos(std::numbers::pi * share)) / 2.0};
}

Rates at(const LambdaLR& s, std::int64_t k, double base) { return {base * s.lr_lambda(k)}; }

// A stretch of OneCycleLR that ends at step `end`.
struct Phase {
  double end;
  double from_lr, to_lr;
  double from_momentum, to_momentum;
};

std::vector<Phase> phases(const OneCycleLR& s) {
  const auto total = static_cast<double>(s.total_steps), up = s.pct_start * total - 1.0;
  const auto start = s.max_lr / s.div_factor, end = start / s.final_div_factor;
  const Phase rise{up, start, s.max_lr, s.max_momentum, s.base_momentum};
  if (!s.three_phase) return {rise, {total - 1.0, s.max_lr, end, s.base_momentum, s.max_momentum}};
  return {rise,
          {2.0 * s.pct_start * total - 2.0, s.max_lr, start, s.base_momentum, s.max_momentum},
          {total - 1.0, start, end, s.max_momentum, s.max_momentum}};
}

Rates at(const OneCycleLR& s, std::int64_t k, double) {
  if (k > s.total_steps) {
    refuse("OneCycleLR is over", "at most total_steps = " + std::to_string(s.total_steps) + " steps",
           std::to_string(k), "give total_steps the number of optimizer steps of the whole run");
  }
  // The step after the last one would overshoot: a linear end would go below zero.
  const auto step = static_cast<double>(std::min(k, s.total_steps - 1));
  const auto stretches = phases(s);
  double begin = 0.0;
  std::size_t i = 0;
  for (; i + 1 < stretches.size() && step > stretches[i].end; ++i) begin = stretches[i].end;
  const auto& phase = stretches[i];
  const auto share = phase.end == begin ? 1.0 : (step - begin) / (phase.end - begin);
  const bool cosine = s.anneal_strategy == "cos";
  Rates rates{anneal(phase.from_lr, phase.to_lr, share, cosine)};
  if (s.cycle_momentum) rates.momentum = anneal(phase.from_momentum, phase.to_momentum, share, cosine);
  return rates;
}

// Step k is DeepSpeed's time k - 1.
Rates at(const WarmupLR& s, std::int64_t k, double) {
  return {s.min_lr +
          (s.max_lr - s.min_lr) * deepspeed::warmup_share(type_of(s.warmup_type), k - 1, s.num_steps)};
}

Rates at(const WarmupDecayLR& s, std::int64_t k, double) {
  const auto share =
      deepspeed::warmup_decay_share(type_of(s.warmup_type), k - 1, s.num_steps, s.total_num_steps);
  return {s.min_lr + (s.max_lr - s.min_lr) * share};
}

Rates at(const ReduceLROnPlateau&, std::int64_t, double base) { return {base}; }

Rates at(const SWALR& s, std::int64_t k, double base, std::size_t group) {
  const auto swa_lr = s.swa_lr.size() == 1 ? s.swa_lr.front() : s.swa_lr.at(group);
  const auto share =
      k < s.anneal_epochs ? static_cast<double>(k) / static_cast<double>(s.anneal_epochs) : 1.0;
  const auto alpha = s.anneal_strategy == "cos" ? (1.0 - std::cos(std::numbers::pi * share)) / 2.0 : share;
  return {swa_lr * alpha + base * (1.0 - alpha)};
}

Rates at(const DeepSpeedLR& s, std::int64_t k, double base, std::size_t group) {
  const deepspeed::Group own{.lr = base, .index = group};
  Rates rates{deepspeed::learning_rate(s.scheduler, k - 1, own)};
  if (const auto* cycle = std::get_if<deepspeed::OneCycle>(&s.scheduler))
    rates.betas = deepspeed::cycled_betas(*cycle, k - 1, own);
  return rates;
}

Rates at(const SequentialLR& s, std::int64_t k, double base, std::size_t group) {
  const auto i = passed(s.milestones, k);
  return rates_at(s.schedulers[i], i == 0 ? k : k - s.milestones[i - 1], base, group);
}

void check_size(const std::string& what, const std::vector<double>& values, std::size_t groups) {
  if (values.size() == 1 || values.size() == groups) return;
  refuse(what + " has the wrong size", "1, or one for each of " + std::to_string(groups) + " groups",
         std::to_string(values.size()));
}

// Lists that may stay empty mean the groups' own rates.
struct GroupListCheck {
  std::size_t groups;

  void check(const char* key, const deepspeed::PerGroup& values) const {
    if (!values.empty()) check_size(std::string("scheduler.params.") + key, values, groups);
  }
  void operator()(const deepspeed::NoScheduler&) const {}
  void operator()(const deepspeed::WarmupCosineLR&) const {}
  void operator()(const deepspeed::OneCycle& s) const {
    check("cycle_min_lr", s.cycle_min_lr);
    check("cycle_max_lr", s.cycle_max_lr);
    check("cycle_min_mom", s.cycle_min_mom);
    check("cycle_max_mom", s.cycle_max_mom);
  }
  void operator()(const deepspeed::LRRangeTest& s) const {
    check("lr_range_test_min_lr", s.lr_range_test_min_lr);
  }
  template <class Warmup>
  void operator()(const Warmup& s) const {
    check("warmup_min_lr", s.warmup_min_lr.value);
    check("warmup_max_lr", s.warmup_max_lr.value);
  }
};

}  // namespace

Rates rates_at(const SchedulerOptions& options, std::int64_t k, double base, std::size_t group) {
  const auto rates = [&](const auto& schedule) {
    // Few schedules tell groups apart.
    if constexpr (requires { at(schedule, k, base, group); })
      return at(schedule, k, base, group);
    else
      return at(schedule, k, base);
  };
  return std::visit(rates, options);
}

void check_groups(const SchedulerOptions& options, std::size_t groups) {
  if (const auto* sequence = std::get_if<SequentialLR>(&options)) {
    for (const auto& scheduler : sequence->schedulers) check_groups(scheduler, groups);
  }
  if (const auto* section = std::get_if<DeepSpeedLR>(&options))
    std::visit(GroupListCheck{groups}, section->scheduler);
  if (const auto* swa = std::get_if<SWALR>(&options)) check_size("SWALR.swa_lr", swa->swa_lr, groups);
}

bool cycles_betas(const SchedulerOptions& options) {
  const auto* section = std::get_if<DeepSpeedLR>(&options);
  const auto* cycle = section == nullptr ? nullptr : std::get_if<deepspeed::OneCycle>(&section->scheduler);
  return cycle != nullptr && cycle->cycle_momentum;
}

bool cycles_momentum(const SchedulerOptions& options) {
  if (const auto* cycle = std::get_if<OneCycleLR>(&options)) return cycle->cycle_momentum;
  const auto* sequence = std::get_if<SequentialLR>(&options);
  return sequence != nullptr &&
         std::any_of(sequence->schedulers.begin(), sequence->schedulers.end(), cycles_momentum);
}

namespace {

void require_positive(const std::string& field, double value) {
  require(std::isfinite(value) && value > 0.0, field, value, "a finite number > 0");
}

void require_at_least(std::int64_t least, const std::string& field, std::int64_t value) {
  if (value < least)
    refuse(field + " is out of range", "an integer >= " + std::to_string(least), std::to_string(value));
}

void require_momentum(const std::string& field, double value) {
  require(value >= 0.0 && value < 1.0, field, value, "a number in [0, 1)");
}

void require_one_of(const std::string& field, const std::string& value, const std::string& a,
                    const std::string& b) {
  if (value != a && value != b) refuse(field + " is unknown", a + " or " + b, "\"" + value + "\"");
}

void require_ascending(const std::string& field, const std::vector<std::int64_t>& values) {
  const auto drop = std::is_sorted_until(values.begin(), values.end());
  if (drop != values.end()) {
    refuse(field + " is out of order", "ascending numbers",
           std::to_string(*drop) + " after " + std::to_string(*std::prev(drop)));
  }
}

void check(const ConstantLR& s) {
  require_share("ConstantLR.factor", s.factor);
  require_at_least(0, "ConstantLR.total_iters", s.total_iters);
}

void check(const LinearLR& s) {
  require(s.start_factor > 0.0 && s.start_factor <= 1.0, "LinearLR.start_factor", s.start_factor,
          "a number in (0, 1]");
  require_share("LinearLR.end_factor", s.end_factor);
  require_at_least(1, "LinearLR.total_iters", s.total_iters);
}

void check(const ExponentialLR& s) { require_positive("ExponentialLR.gamma", s.gamma); }

void check(const StepLR& s) {
  require_at_least(1, "StepLR.step_size", s.step_size);
  require_positive("StepLR.gamma", s.gamma);
}

void check(const MultiStepLR& s) {
  require_at_least(1, "MultiStepLR.milestones.size()", static_cast<std::int64_t>(s.milestones.size()));
  require_ascending("MultiStepLR.milestones", s.milestones);
  require_positive("MultiStepLR.gamma", s.gamma);
}

void check(const CosineAnnealingLR& s) {
  require_at_least(1, "CosineAnnealingLR.T_max", s.T_max);
  require_not_negative("CosineAnnealingLR.eta_min", s.eta_min);
}

void check(const LambdaLR& s) {
  if (!s.lr_lambda) refuse("LambdaLR.lr_lambda is empty", "a function of the step", "none");
}

void check(const OneCycleLR& s) {
  require_positive("OneCycleLR.max_lr", s.max_lr);
  require_at_least(1, "OneCycleLR.total_steps", s.total_steps);
  require_share("OneCycleLR.pct_start", s.pct_start);
  require_one_of("OneCycleLR.anneal_strategy", s.anneal_strategy, "cos", "linear");
  require_momentum("OneCycleLR.base_momentum", s.base_momentum);
  require_momentum("OneCycleLR.max_momentum", s.max_momentum);
  require_positive("OneCycleLR.div_factor", s.div_factor);
  require_positive("OneCycleLR.final_div_factor", s.final_div_factor);
}

template <class Warmup>
void check_warmup(const std::string& name, const Warmup& s) {
  require_not_negative(name + ".min_lr", s.min_lr);
  require_not_negative(name + ".max_lr", s.max_lr);
  require_at_least(1, name + ".num_steps", s.num_steps);
  require_one_of(name + ".warmup_type", s.warmup_type, "log", "linear");
}

void check(const WarmupLR& s) { check_warmup("WarmupLR", s); }

void check(const WarmupDecayLR& s) {
  check_warmup("WarmupDecayLR", s);
  require_at_least(s.num_steps, "WarmupDecayLR.total_num_steps", s.total_num_steps);
}

void check(const ReduceLROnPlateau& s) {
  require_one_of("ReduceLROnPlateau.mode", s.mode, "min", "max");
  require(s.factor > 0.0 && s.factor < 1.0, "ReduceLROnPlateau.factor", s.factor, "a number in (0, 1)");
  require_at_least(0, "ReduceLROnPlateau.patience", s.patience);
  require_not_negative("ReduceLROnPlateau.threshold", s.threshold);
  require_one_of("ReduceLROnPlateau.threshold_mode", s.threshold_mode, "rel", "abs");
  require_at_least(0, "ReduceLROnPlateau.cooldown", s.cooldown);
  require_not_negative("ReduceLROnPlateau.min_lr", s.min_lr);
  require_not_negative("ReduceLROnPlateau.eps", s.eps);
}

void check(const SWALR& s) {
  require_at_least(1, "SWALR.swa_lr.size()", static_cast<std::int64_t>(s.swa_lr.size()));
  for (const auto lr : s.swa_lr) require_positive("SWALR.swa_lr", lr);
  require_at_least(0, "SWALR.anneal_epochs", s.anneal_epochs);
  require_one_of("SWALR.anneal_strategy", s.anneal_strategy, "cos", "linear");
}

void check(const DeepSpeedLR& s) {
  if (std::holds_alternative<deepspeed::NoScheduler>(s.scheduler))
    refuse("DeepSpeedLR.scheduler is empty", "a section \"scheduler\"", "none");
}

void check(const SequentialLR& s) {
  if (s.schedulers.empty()) refuse("SequentialLR.schedulers is empty", "at least one scheduler", "none");
  if (s.milestones.size() + 1 != s.schedulers.size()) {
    refuse("SequentialLR.milestones has the wrong size",
           "one fewer than schedulers: " + std::to_string(s.schedulers.size() - 1),
           std::to_string(s.milestones.size()));
  }
  require_ascending("SequentialLR.milestones", s.milestones);
  if (!s.milestones.empty()) require_at_least(1, "SequentialLR.milestones[0]", s.milestones.front());
  for (const auto& scheduler : s.schedulers) {
    if (std::holds_alternative<ReduceLROnPlateau>(scheduler)) {
      refuse("SequentialLR.schedulers cannot be followed", "schedules that are functions of the step",
             "ReduceLROnPlateau, which needs a metric");
    }
    validate(scheduler);
  }
}

}  // namespace

void validate(const SchedulerOptions& options) {
  std::visit([](const auto& schedule) { check(schedule); }, options);
}

}  // namespace lockstep::detail
