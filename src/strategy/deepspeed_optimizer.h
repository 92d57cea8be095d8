// The optimizer and the schedule that DeepSpeed's JSON asks for.
#pragma once

#include <lockstep/base/export.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizers.h>

namespace lockstep::detail {

/// Sections "optimizer" and "scheduler"; empty without the first. The schedule is stepped with the optimizer;
/// `steps` is how many there will be, if known, for a total_num_steps that is "auto".
/// @throws ConfigError for values that the optimizer refuses, and what is "auto" and nobody can fill.
/// Exported for tests.
LOCKSTEP_API Optimizers optimizers_of(const DeepSpeedConfig& config,
                                      std::optional<std::int64_t> steps = std::nullopt);

/// Section "scheduler" alone; nothing without it.
std::optional<LRScheduler> scheduler_of(const DeepSpeedConfig& config, std::optional<std::int64_t> steps);

}  // namespace lockstep::detail
