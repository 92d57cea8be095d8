// Keys of scheduler.params, for each scheduler.type.
#include <lockstep/deepspeed/lr_schedules.h>

#include <array>

namespace lockstep::deepspeed {
namespace {

using Row = Choice<Scheduler>;

void describe_total(OptionVisitor& v, AutoOr<std::optional<std::int64_t>>& total_num_steps) {
  v.field("total_num_steps", total_num_steps, "Optimizer steps of the whole run", at_least(0));
}

template <class Schedule>
void describe_warmup(OptionVisitor& v, Schedule& o) {
  v.field("warmup_min_lr", o.warmup_min_lr, "Learning rate at the start, one or one per group");
  v.field("warmup_max_lr", o.warmup_max_lr, "Learning rate after the warm-up, one or one per group");
  v.field("warmup_num_steps", o.warmup_num_steps, "Steps of the warm-up", at_least(1));
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
  v.field("warmup_num_steps", o.warmup_num_steps, "Steps of the warm-up", at_least(1));
  v.field("cos_min_ratio", o.cos_min_ratio, "Share of the group's rate at the end");
  v.field("warmup_type", o.warmup_type, "How the learning rate rises");
}

void describe(OptionVisitor& v, OneCycle& o) {
  v.field("cycle_min_lr", o.cycle_min_lr, "Learning rate at both ends of the cycle");
  v.field("cycle_max_lr", o.cycle_max_lr, "Learning rate at its peak");
  v.field("decay_lr_rate", o.decay_lr_rate, "How the learning rate falls after the cycle");
  v.field("cycle_first_step_size", o.cycle_first_step_size, "Steps up", at_least(1));
  v.field("cycle_second_step_size", o.cycle_second_step_size, "Steps down", at_least(0));
  v.field("cycle_first_stair_count", o.cycle_first_stair_count, "Stairs up; 0: a line", at_least(0));
  v.field("cycle_second_stair_count", o.cycle_second_stair_count, "Stairs down", at_least(0));
  v.field("decay_step_size", o.decay_step_size, "Steps between decays after the cycle", at_least(0));
  v.field("cycle_momentum", o.cycle_momentum, "Let momentum go the other way");
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

std::span<const Row> scheduler_choices() {
  static const std::array rows{
      Row{"none", NoScheduler{}, "the program's own"},
      Row{"WarmupLR", WarmupLR{}, "up, then constant"},
      Row{"WarmupDecayLR", WarmupDecayLR{}, "up, then down in a line"},
      Row{"WarmupCosineLR", WarmupCosineLR{}, "up, then down half a cosine"},
      Row{"OneCycle", OneCycle{}, "up and down, then decay"},
      Row{"LRRangeTest", LRRangeTest{}, "up for ever, to find a good rate"},
  };
  return rows;
}

}  // namespace lockstep::deepspeed
