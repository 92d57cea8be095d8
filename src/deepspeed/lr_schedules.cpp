// The arithmetic of DeepSpeed's schedules, such as WarmupLR's warm-up, in its order of operations, so that
// rates are its own to the last bit.
#include <lockstep/deepspeed/lr_schedules.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include <lockstep/base/error.h>

namespace lockstep::deepspeed {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& got) {
  throw ConfigError("deepspeed", {.what = what, .expected = expected, .got = got});
}

double of_group(const std::string& key, const PerGroup& values, const Group& group) {
  if (values.size() == 1) return values.front();
  if (group.index < values.size()) return values[group.index];
  refuse("scheduler.params." + key, "one number, or one for each parameter group",
         std::to_string(values.size()) + " numbers, and there is a group " + std::to_string(group.index));
}

double highest_of(const PerGroup& warmup_max_lr, const Group& group) {
  return warmup_max_lr.empty() ? group.lr : of_group("warmup_max_lr", warmup_max_lr, group);
}

std::int64_t total_of(const AutoOr<std::optional<std::int64_t>>& total_num_steps) {
  if (!total_num_steps.value)
    refuse("scheduler.params.total_num_steps", "a number of steps",
           total_num_steps.is_auto ? "\"auto\", which nobody has filled" : "none");
  return *total_num_steps.value;
}

std::int64_t warmup_steps(std::int64_t warmup_num_steps) {
  return std::max<std::int64_t>(2, warmup_num_steps);
}

/// The share of its way that a warm-up of `steps` has gone at time t < steps.
double risen(WarmupType type, std::int64_t t, std::int64_t steps) {
  if (type == WarmupType::kLinear) return static_cast<double>(t) / static_cast<double>(steps);
  return 1.0 / std::log(static_cast<double>(steps)) * std::log(static_cast<double>(t + 1));
}

/// The share of the way from the smallest to the largest rate that a cycle is at.
double scale(const OneCycle& s, std::int64_t t) {
  const auto first = static_cast<double>(s.cycle_first_step_size);
  const auto second = static_cast<double>(s.cycle_second_step_size.value_or(s.cycle_first_step_size));
  const auto total = first + second, ratio = first / total;
  const auto iteration = static_cast<double>(t + 1);
  const auto x = 1.0 + iteration / total - std::floor(1.0 + iteration / total);
  const bool rises = x <= ratio;
  const auto stairs =
      rises ? s.cycle_first_stair_count : s.cycle_second_stair_count.value_or(s.cycle_first_stair_count);
  if (stairs == 0) return rises ? x / ratio : (x - 1.0) / (ratio - 1.0);
  const auto count = static_cast<double>(stairs), within = std::fmod(iteration, total);
  const auto position = within <= first ? within * count / first : (total - within) * count / second;
  return std::floor(position) / count;
}

std::int64_t cycle_end(const OneCycle& s) {
  return s.cycle_first_step_size + s.cycle_second_step_size.value_or(s.cycle_first_step_size);
}

/// How many decays there have been by time t, which is after the cycle.
double decays(const OneCycle& s, std::int64_t t) {
  return static_cast<double>(t - cycle_end(s) + 1) / static_cast<double>(s.decay_step_size);
}

}  // namespace

double warmup_share(WarmupType type, std::int64_t t, std::int64_t steps) {
  if (t < 0) return 0.0;
  steps = warmup_steps(steps);
  return t < steps ? risen(type, t, steps) : 1.0;
}

double warmup_decay_share(WarmupType type, std::int64_t t, std::int64_t steps, std::int64_t total) {
  steps = warmup_steps(steps);
  if (t < steps) return warmup_share(type, t, steps);
  const auto span = std::max(1.0, static_cast<double>(total - steps));
  return std::max(0.0, static_cast<double>(total - t) / span);
}

double learning_rate(const WarmupLR& s, std::int64_t t, const Group& group) {
  const auto low = of_group("warmup_min_lr", s.warmup_min_lr.value, group);
  const auto high = highest_of(s.warmup_max_lr.value, group);
  return low + (high - low) * warmup_share(s.warmup_type, t, s.warmup_num_steps.value);
}

double learning_rate(const WarmupDecayLR& s, std::int64_t t, const Group& group) {
  const auto low = of_group("warmup_min_lr", s.warmup_min_lr.value, group);
  const auto high = highest_of(s.warmup_max_lr.value, group);
  const auto total = total_of(s.total_num_steps);
  return low + (high - low) * warmup_decay_share(s.warmup_type, t, s.warmup_num_steps.value, total);
}

double learning_rate(const WarmupCosineLR& s, std::int64_t t, const Group& group) {
  const auto total = total_of(s.total_num_steps), steps = warmup_steps(s.warmup_num_steps.value);
  if (t < 0) return 0.0;
  if (t < steps)
    return group.lr * (s.warmup_min_ratio + risen(s.warmup_type, t, steps) * (1.0 - s.warmup_min_ratio));
  const auto span = static_cast<double>(std::max<std::int64_t>(1, total - steps));
  const auto progress = std::min(1.0, static_cast<double>(t - steps + 1) / span);
  const auto share = (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
  return group.lr * std::max(0.0, s.cos_min_ratio + (1.0 - s.cos_min_ratio) * share);
}

double learning_rate(const OneCycle& s, std::int64_t t, const Group& group) {
  const auto low = of_group("cycle_min_lr", s.cycle_min_lr, group);
  const auto high = of_group("cycle_max_lr", s.cycle_max_lr, group);
  if (t < cycle_end(s)) return low + (high - low) * scale(s, t);
  if (s.decay_step_size == 0 || s.decay_lr_rate == 0.0) return low;
  return low / (1.0 + s.decay_lr_rate * decays(s, t));
}

double learning_rate(const LRRangeTest& s, std::int64_t t, const Group& group) {
  const auto low = of_group("lr_range_test_min_lr", s.lr_range_test_min_lr, group);
  const auto interval = static_cast<double>(t + 1) / static_cast<double>(s.lr_range_test_step_size);
  return low *
         (1.0 + s.lr_range_test_step_rate * (s.lr_range_test_staircase ? std::floor(interval) : interval));
}

double learning_rate(const Scheduler& schedule, std::int64_t t, const Group& group) {
  const auto of = [&](const auto& s) {
    if constexpr (std::is_same_v<std::decay_t<decltype(s)>, NoScheduler>) {
      return group.lr;
    } else {
      return learning_rate(s, t, group);
    }
  };
  return std::visit(of, schedule);
}

std::optional<Betas> cycled_betas(const OneCycle& s, std::int64_t t, const Group& group) {
  constexpr double kBeta2 = 0.99;
  if (!s.cycle_momentum) return std::nullopt;
  const auto low = of_group("cycle_min_mom", s.cycle_min_mom, group);
  const auto high = of_group("cycle_max_mom", s.cycle_max_mom, group);
  if (t < 0) return Betas{low, kBeta2};
  if (t < cycle_end(s)) return Betas{high - (high - low) * scale(s, t), kBeta2};
  if (s.decay_step_size == 0 || s.decay_mom_rate == 0.0) return Betas{high, kBeta2};
  return Betas{high * (1.0 + s.decay_mom_rate * decays(s, t)), kBeta2};
}

namespace {

using SchedulerChoice = Choice<Scheduler>;

void describe_total(OptionVisitor& v, AutoOr<std::optional<std::int64_t>>& total_num_steps) {
  v.field("total_num_steps", total_num_steps, "Optimizer steps of the whole run", at_least(0));
}

template <class Schedule>
void describe_warmup(OptionVisitor& v, Schedule& o) {
  v.field("warmup_min_lr", o.warmup_min_lr, "Learning rate at the start, one or one per group");
  v.field("warmup_max_lr", o.warmup_max_lr, "Learning rate after the warm-up, one or one per group");
  v.field("warmup_num_steps", o.warmup_num_steps, "Steps of the warm-up, 2 at least", at_least(0));
  v.field("warmup_type", o.warmup_type, "How the learning rate rises");
}

}  // namespace

void describe(OptionVisitor& v, WarmupLR& o) { describe_warmup(v, o); }

void describe(OptionVisitor& v, WarmupDecayLR& o) {
  describe_total(v, o.total_num_steps);
  describe_warmup(v, o);
}

void describe(OptionVisitor& v, WarmupCosineLR& o) {
  describe_total(v, o.total_num_steps);
  v.field("warmup_min_ratio", o.warmup_min_ratio, "Share of the group's rate at the start");
  v.field("warmup_num_steps", o.warmup_num_steps, "Steps of the warm-up, 2 at least", at_least(0));
  v.field("cos_min_ratio", o.cos_min_ratio, "Share of the group's rate at the end");
  v.field("warmup_type", o.warmup_type, "How the learning rate rises");
}

void describe(OptionVisitor& v, OneCycle& o) {
  v.field("cycle_min_lr", o.cycle_min_lr, "Learning rate at both ends of the cycle");
  v.field("cycle_max_lr", o.cycle_max_lr, "Learning rate at its peak");
  v.field("decay_lr_rate", o.decay_lr_rate, "How the learning rate falls after the cycle");
  v.field("cycle_first_step_size", o.cycle_first_step_size, "Steps in which the rate rises", at_least(1));
  v.field("cycle_second_step_size", o.cycle_second_step_size, "Steps in which the rate falls", at_least(0));
  v.field("cycle_first_stair_count", o.cycle_first_stair_count, "Stairs of the rise; 0: a line", at_least(0));
  v.field("cycle_second_stair_count", o.cycle_second_stair_count, "Stairs of the fall", at_least(0));
  v.field("decay_step_size", o.decay_step_size, "Steps between decays after the cycle", at_least(0));
  v.field("cycle_momentum", o.cycle_momentum, "Cycle momentum in the opposite direction");
  v.field("cycle_min_mom", o.cycle_min_mom, "Momentum at the peak of the learning rate");
  v.field("cycle_max_mom", o.cycle_max_mom, "Momentum at both ends of the cycle");
  v.field("decay_mom_rate", o.decay_mom_rate, "How momentum grows after the cycle");
}

void describe(OptionVisitor& v, LRRangeTest& o) {
  v.field("lr_range_test_min_lr", o.lr_range_test_min_lr, "Learning rate at the start");
  v.field("lr_range_test_step_size", o.lr_range_test_step_size, "Steps of one increase", at_least(1));
  v.field("lr_range_test_step_rate", o.lr_range_test_step_rate, "Size of one increase");
  v.field("lr_range_test_staircase", o.lr_range_test_staircase, "Increase in stairs");
}

std::span<const OptionName<WarmupType>> option_names(WarmupType) {
  static constexpr std::array<OptionName<WarmupType>, 2> rows{
      {{"log", WarmupType::kLog}, {"linear", WarmupType::kLinear}}};
  return rows;
}

std::span<const SchedulerChoice> scheduler_choices() {
  static const std::array rows{
      SchedulerChoice{"none", NoScheduler{}, "the program's own"},
      SchedulerChoice{"WarmupLR", WarmupLR{}, "up, then constant"},
      SchedulerChoice{"WarmupDecayLR", WarmupDecayLR{}, "up, then down in a line"},
      SchedulerChoice{"WarmupCosineLR", WarmupCosineLR{}, "up, then down half a cosine"},
      SchedulerChoice{"OneCycle", OneCycle{}, "up and down, then decay"},
      SchedulerChoice{"LRRangeTest", LRRangeTest{}, "up for ever, to find a good rate"},
  };
  return rows;
}

}  // namespace lockstep::deepspeed
