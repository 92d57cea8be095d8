// The curves of scheduler_options.h as functions of k.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <lockstep/optim/scheduler_options.h>

namespace lockstep::detail {

/// What a schedule sets in a group.
struct Rates {
  double lr;
  std::optional<double> momentum = {};         // or beta1; nothing: left as it is
  std::optional<deepspeed::Betas> betas = {};  // of groups that have any
};

/// Of the group number `group`, which starts from `base`.
/// @throws ConfigError past the end of OneCycleLR. Not for ReduceLROnPlateau, which is no curve.
Rates rates_at(const SchedulerOptions& options, std::int64_t k, double base, std::size_t group);

/// @throws ConfigError where the options are those of another number of groups
void check_groups(const SchedulerOptions& options, std::size_t groups);

/// Whether rates_at() sets momentum at some k.
bool cycles_momentum(const SchedulerOptions& options);

/// Whether it sets betas: DeepSpeed's OneCycle, which leaves momentum of other optimizers alone.
LOCKSTEP_API bool cycles_betas(const SchedulerOptions& options);

/// @throws ConfigError naming the field and value that torch would refuse too
void validate(const SchedulerOptions& options);

}  // namespace lockstep::detail
