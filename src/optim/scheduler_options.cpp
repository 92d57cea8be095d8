// The values that torch.optim.lr_scheduler refuses, refused here by field and value.
#include <lockstep/optim/scheduler_options.h>

#include <algorithm>
#include <cmath>

#include "optim/refuse.h"
#include "optim/schedule.h"

namespace lockstep::detail {
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
