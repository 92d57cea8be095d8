// The optimizer and the schedule that DeepSpeed's JSON asks for.
#pragma once

#include <lockstep/base/export.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizers.h>

namespace lockstep::detail {

/// Sections "optimizer" and "scheduler"; empty without the first. The schedule is stepped with the optimizer.
/// @throws ConfigError for values that the optimizer refuses. Exported for tests.
LOCKSTEP_API Optimizers optimizers_of(const DeepSpeedConfig& config);

/// Section "scheduler" alone; nothing without it.
std::optional<LRScheduler> scheduler_of(const DeepSpeedConfig& config);

}  // namespace lockstep::detail
