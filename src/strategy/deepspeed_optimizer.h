// The optimizer and the schedule that DeepSpeed's JSON asks for, and what a run gives for the "auto" in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/strategy/deepspeed.h>

namespace lockstep::detail {

/// A setting that the file leaves open, and what it is in this run.
struct Filling {
  std::string key;
  std::string value;
  std::string source;  ///< "warmup_steps of the strategy"
};

/// A configuration whose optimizer or scheduler has no "auto" any more.
struct FilledConfig {
  DeepSpeedConfig config;
  std::vector<Filling> fillings = {};
};

/// Fills section "optimizer": lr by learning_rate, the others by DeepSpeed's defaults. Exported for tests, as
/// the next.
LOCKSTEP_API void fill_optimizer(FilledConfig& filled, const DeepSpeed& arguments);

/// Fills section "scheduler": warmup_num_steps by warmup_steps or warmup_ratio, total_num_steps by `steps`,
/// those of the run, if they are known.
/// @throws ConfigError for a number of steps that nobody knows
LOCKSTEP_API void fill_scheduler(FilledConfig& filled, const DeepSpeed& arguments,
                                 std::optional<std::int64_t> steps);

/// @throws ConfigError for learning_rate, warmup_steps and warmup_ratio where `used` has no "auto" for them.
/// `used` is of a run: its sections are those that are not the program's own
void require_takers(const DeepSpeedConfig& used, const DeepSpeed& arguments);

/// `KEY (PLACE) is VALUE, SOURCE; ...` of all.
std::string sentence_of(const std::vector<Filling>& fillings, const DeepSpeedConfig& config);

/// Of section "optimizer", whose "auto" has been filled; empty without one.
/// @throws ConfigError where it cannot be had. Exported for tests, as the next.
LOCKSTEP_API OptimizerFactory optimizer_of(const DeepSpeedConfig& config);

/// Of section "scheduler", as well, stepped with the optimizer; nothing without one.
LOCKSTEP_API std::optional<LRScheduler> scheduler_of(const DeepSpeedConfig& config);

/// Whether the section is there, and not empty.
bool has_section(const DeepSpeedConfig& config, const std::string& key);

}  // namespace lockstep::detail
