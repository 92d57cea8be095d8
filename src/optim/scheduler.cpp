#include <lockstep/optim/scheduler.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "optim/make_optimizer.h"
#include "optim/schedule.h"

namespace lockstep {
namespace {

void check_has_momentum(const Optimizer& optimizer) {
  for (const auto& group : optimizer.groups()) {
    if (group.momentum || group.betas) continue;
    detail::refuse("OneCycleLR.cycle_momentum cannot be followed", "an optimizer with momentum or betas",
                   std::string(optimizer.name()), "set cycle_momentum = false");
  }
}

void set_momentum(Optimizer::Group& group, double momentum) {
  if (group.betas) {
    (*group.betas)[0] = momentum;
  } else {
    group.momentum = momentum;
  }
}

bool is_better(const ReduceLROnPlateau& plateau, double value, double best) {
  const bool lower = plateau.mode == "min";
  if (plateau.threshold_mode == "abs") {
    return lower ? value < best - plateau.threshold : value > best + plateau.threshold;
  }
  return lower ? value < best * (1.0 - plateau.threshold) : value > best * (1.0 + plateau.threshold);
}

// Counts `metric`; true when it is time to cut the rates.
bool is_stuck(const ReduceLROnPlateau& plateau, double metric, SchedulerState& state) {
  if (is_better(plateau, metric, state.best)) {
    state.best = metric;
    state.bad_steps = 0;
  } else {
    ++state.bad_steps;
  }
  if (state.cooldown_left > 0) {
    --state.cooldown_left;
    state.bad_steps = 0;
  }
  if (state.bad_steps <= plateau.patience) return false;
  state.cooldown_left = plateau.cooldown;
  state.bad_steps = 0;
  return true;
}

// The rate at step k of a group that had `lr` at the step before, and came after the schedule: rates are an
// affine function of where a group starts. Of schedules that do not depend on that it keeps its own.
double next_rate(const SchedulerOptions& options, std::int64_t k, double lr) {
  const auto rate = [&](std::int64_t step, double base) {
    return detail::rates_at(options, step, base, 0).lr;
  };
  const double before_of_0 = rate(k - 1, 0), before = rate(k - 1, 1) - before_of_0;
  const double now_of_0 = rate(k, 0), now = rate(k, 1) - now_of_0;
  return before == 0 ? lr : now_of_0 + (lr - before_of_0) * (now / before);
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options, Optimizer& optimizer)
    : options_(std::move(options)), optimizer_(&optimizer) {
  detail::validate(options_);
  detail::check_groups(options_, optimizer.groups().size());
  if (detail::cycles_momentum(options_)) check_has_momentum(optimizer);
  for (const auto& group : optimizer.groups()) {
    state_.base_lrs.push_back(group.initial_lr);
    state_.last_lrs.push_back(group.lr);
  }
  if (const auto* plateau = std::get_if<ReduceLROnPlateau>(&options_)) {
    constexpr auto kWorst = std::numeric_limits<double>::infinity();
    state_.best = plateau->mode == "min" ? kWorst : -kWorst;
  } else {
    go_to(0);
  }
}

bool Scheduler::needs_metric() const { return std::holds_alternative<ReduceLROnPlateau>(options_); }

void Scheduler::step() {
  if (needs_metric())
    detail::refuse("ReduceLROnPlateau cannot step", "the value of the metric it watches", "none");
  const auto k = state_.last_step + 1;
  go_to(k);
  for (std::size_t i = state_.base_lrs.size(); i < optimizer_->groups().size(); ++i) {
    auto& group = optimizer_->groups()[i];
    group.lr = next_rate(options_, k, group.lr);
  }
}

void Scheduler::step(double metric) {
  const auto* plateau = std::get_if<ReduceLROnPlateau>(&options_);
  if (plateau == nullptr)
    detail::refuse("the scheduler watches no metric", "step() without a value", "a value");
  ++state_.last_step;
  const bool cut = is_stuck(*plateau, metric, state_);
  for (auto& group : optimizer_->groups()) {
    const auto lower = std::max(group.lr * plateau->factor, plateau->min_lr);
    if (cut && group.lr - lower > plateau->eps) group.lr = lower;
  }
  for (std::size_t i = 0; i < state_.last_lrs.size(); ++i) state_.last_lrs[i] = optimizer_->groups()[i].lr;
}

void Scheduler::load_state(SchedulerState state) {
  const auto groups = optimizer_->groups().size();
  const auto saved = state.base_lrs.size();
  // Groups that came after the schedule are none of its own.
  if (saved == 0 || saved > groups || state.last_lrs.size() != saved) {
    throw CheckpointError("optim", {.what = "scheduler state does not fit",
                                    .expected = "at most " + std::to_string(groups) + " parameter groups",
                                    .got = std::to_string(saved),
                                    .where = "",
                                    .hint = ""});
  }
  state_ = std::move(state);
}

void Scheduler::go_to(std::int64_t k) {
  std::vector<detail::Rates> rates;
  for (std::size_t i = 0; i < state_.base_lrs.size(); ++i)
    rates.push_back(detail::rates_at(options_, k, state_.base_lrs[i], i));
  state_.last_step = k;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    set_lr(i, rates[i].lr);
    auto& group = optimizer_->groups()[i];
    if (rates[i].momentum) set_momentum(group, *rates[i].momentum);
    if (rates[i].betas && group.betas) group.betas = {rates[i].betas->beta1, rates[i].betas->beta2};
  }
}

void Scheduler::set_lr(std::size_t group, double lr) {
  optimizer_->groups()[group].lr = lr;
  state_.last_lrs[group] = lr;
}

std::span<const OptionName<Interval>> option_names(Interval) {
  static constexpr OptionName<Interval> kNames[] = {{"epoch", Interval::kEpoch}, {"step", Interval::kStep}};
  return kNames;
}

}  // namespace lockstep
