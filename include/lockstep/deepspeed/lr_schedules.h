// Learning rates over the steps of a run, as DeepSpeed's runtime/lr_schedules.py gives them; also section
// "scheduler" of its configuration.
//
// Time is DeepSpeed's `last_batch_iteration` t: -1 when the scheduler is made, 0 after the first optimizer
// step, and so on; steps that are skipped for an overflow do not count. The rate of optimizer step k (from 0)
// is that of t = k - 1, so a warm-up runs its first two steps at the minimum: t = -1 and t = 0 both give it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/deepspeed/auto_or.h>
#include <lockstep/deepspeed/optimizer_config.h>

namespace lockstep::deepspeed {

/// How a warm-up rises.
enum class WarmupType {
  kLog,    ///< ln(t + 1) / ln(W)
  kLinear  ///< t / W
};

/// No section: the program's own scheduler.
struct NoScheduler {};

/// A rate for each parameter group, or one for all.
using PerGroup = std::vector<double>;

/// From warmup_min_lr to warmup_max_lr within W = max(2, warmup_num_steps), then constant.
struct WarmupLR {
  AutoOr<PerGroup> warmup_min_lr = PerGroup{0.0};
  AutoOr<PerGroup> warmup_max_lr = PerGroup{};  ///< empty: the groups' own rates
  AutoOr<std::int64_t> warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
};

/// As WarmupLR, then in a straight line down to warmup_min_lr, reached at t = total_num_steps.
struct WarmupDecayLR {
  AutoOr<std::optional<std::int64_t>> total_num_steps = {};  ///< required
  AutoOr<PerGroup> warmup_min_lr = PerGroup{0.0};
  AutoOr<PerGroup> warmup_max_lr = PerGroup{1e-3};  ///< empty: the groups' own rates
  AutoOr<std::int64_t> warmup_num_steps = 1000;
  WarmupType warmup_type = WarmupType::kLog;
};

/// Ratios of the groups' own rates: warmup_min_ratio to 1, then half a cosine down to cos_min_ratio. 0 at t =
/// -1, even where warmup_min_ratio is not.
struct WarmupCosineLR {
  AutoOr<std::optional<std::int64_t>> total_num_steps = {};  ///< required
  double warmup_min_ratio = 0.0;
  AutoOr<std::int64_t> warmup_num_steps = 1000;
  double cos_min_ratio = 1e-4;
  WarmupType warmup_type = WarmupType::kLog;
};

/// Up from cycle_min_lr to cycle_max_lr, down again, then decay; momentum (beta1) goes the other way.
struct OneCycle {
  PerGroup cycle_min_lr = {};  ///< required
  PerGroup cycle_max_lr = {};  ///< required
  double decay_lr_rate = 0.0;
  std::int64_t cycle_first_step_size = 2000;
  std::optional<std::int64_t> cycle_second_step_size = {};  ///< none: as the first
  std::int64_t cycle_first_stair_count = 0;                 ///< 0: no stairs
  std::optional<std::int64_t> cycle_second_stair_count = {};
  std::int64_t decay_step_size = 0;  ///< 0: no decay
  bool cycle_momentum = true;
  PerGroup cycle_min_mom = {0.8};
  PerGroup cycle_max_mom = {0.9};
  double decay_mom_rate = 0.0;
};

/// Grows from lr_range_test_min_lr, to find the largest rate that trains.
struct LRRangeTest {
  PerGroup lr_range_test_min_lr = {1e-3};
  std::int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1.0;
  bool lr_range_test_staircase = false;
};

/// A schedule of the file, or none.
using Scheduler = std::variant<NoScheduler, WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest>;

/// One parameter group: its place among all, and the rate that it was given.
struct Group {
  double lr = 1e-3;       ///< the learning rate that the group began with
  std::size_t index = 0;  ///< of the group, from 0
};

/// The share of its way from the smallest to the largest rate that a warm-up has gone at time t >= -1; fewer
/// than 2 `steps` count as 2.
LOCKSTEP_API double warmup_share(WarmupType type, std::int64_t t, std::int64_t steps);
/// The same of a warm-up that is followed by a straight line back, which ends at t = total.
LOCKSTEP_API double warmup_decay_share(WarmupType type, std::int64_t t, std::int64_t steps,
                                       std::int64_t total);

/// The rate of a group at time t >= -1. "auto" counts as the default.
/// @throws ConfigError when a required number is missing, or there is none for the group
LOCKSTEP_API double learning_rate(const WarmupLR& schedule, std::int64_t t, const Group& group);
/// The same for WarmupDecayLR.
LOCKSTEP_API double learning_rate(const WarmupDecayLR& schedule, std::int64_t t, const Group& group);
/// The same for WarmupCosineLR.
LOCKSTEP_API double learning_rate(const WarmupCosineLR& schedule, std::int64_t t, const Group& group);
/// The same for OneCycle.
LOCKSTEP_API double learning_rate(const OneCycle& schedule, std::int64_t t, const Group& group);
/// The same for LRRangeTest.
LOCKSTEP_API double learning_rate(const LRRangeTest& schedule, std::int64_t t, const Group& group);
/// As those; the group's own rate under NoScheduler.
LOCKSTEP_API double learning_rate(const Scheduler& schedule, std::int64_t t, const Group& group);

/// The betas that OneCycle gives a group's Adam at time t: beta2 is 0.99, and when the scheduler is made
/// beta1 is cycle_min_mom, not cycle_max_mom. Nothing without cycle_momentum.
/// @throws ConfigError as learning_rate does
LOCKSTEP_API std::optional<Betas> cycled_betas(const OneCycle& schedule, std::int64_t t, const Group& group);

LOCKSTEP_API void describe(OptionVisitor& v, WarmupLR& o);
LOCKSTEP_API void describe(OptionVisitor& v, WarmupDecayLR& o);
LOCKSTEP_API void describe(OptionVisitor& v, WarmupCosineLR& o);
LOCKSTEP_API void describe(OptionVisitor& v, OneCycle& o);
LOCKSTEP_API void describe(OptionVisitor& v, LRRangeTest& o);

LOCKSTEP_API std::span<const OptionName<WarmupType>> option_names(WarmupType);

/// Every value of scheduler.type that is known.
LOCKSTEP_API std::span<const Choice<Scheduler>> scheduler_choices();

}  // namespace lockstep::deepspeed
