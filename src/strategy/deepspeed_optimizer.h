// The optimizer and the schedule that DeepSpeed's JSON asks for.
#pragma once

#include <lockstep/base/export.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizer_factory.h>

namespace lockstep::detail {

/// Of section "optimizer", whose "auto" has been filled; empty without one.
/// @throws ConfigError where it cannot be had. Exported for tests, as the next.
LOCKSTEP_API OptimizerFactory optimizer_of(const DeepSpeedConfig& config);

/// Of section "scheduler", as well, stepped with the optimizer; nothing without one.
LOCKSTEP_API std::optional<LRScheduler> scheduler_of(const DeepSpeedConfig& config);

/// Whether the section is there, and not empty.
bool has_section(const DeepSpeedConfig& config, const std::string& key);

}  // namespace lockstep::detail
