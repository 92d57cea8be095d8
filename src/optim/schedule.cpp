#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "optim/refuse.h"

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

}  // namespace lockstep::detail
