// Applies DeepSpeed's configuration to the options of a Trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Precision, accumulation, clipping and windows are what strategy deepspeed's configuration says, where
/// `options` leave them as they are by default. Returns it; does nothing under another strategy.
/// @throws ConfigError naming key and option, and both values, where they disagree. Exported for tests, as
/// the next.
LOCKSTEP_API std::optional<DeepSpeedConfig> apply_deepspeed(TrainerOptions& options, int world_size);

/// @throws ConfigError naming key and values where `schedule` and the configuration's batch sizes disagree
void check_accumulation(const AccumulationSchedule& schedule, const DeepSpeedConfig& config, int world_size);

/// The batch sizes of a fit.
struct TrainedBatches {
  std::int64_t batch_size = 0;    ///< of the training loader, on each rank; 0: not known
  std::int64_t accumulation = 1;  ///< micro-batches per step
  int world_size = 1;
  std::optional<std::int64_t> steps = {};  ///< of the run, if known
};

/// @throws ConfigError quoting the numbers where the configuration says another micro-batch size, or another
/// number of samples per step
LOCKSTEP_API void check_batch_size(DeepSpeedConfig config, const TrainedBatches& trained);

/// The optimizers of a fit, and what is to be reported about how the configuration completed them.
struct CompletedOptimizers {
  Optimizers optimizers;
  std::vector<std::string> warnings = {};  ///< about settings of the configuration that have no effect
  std::string filled = {};                 ///< what was "auto", and no batch size; empty without
};

/// Completes `own`, the module's optimizers, from the configuration: the optimizer where the module gives
/// none, and the schedule of the only optimizer where that has none.
/// @throws ConfigError for a section that is used and not supported, for an "auto" that nothing fills, and
/// for arguments that fill nothing. Exported for tests
LOCKSTEP_API CompletedOptimizers completed(Optimizers own, const DeepSpeedConfig& config,
                                           const DeepSpeed& arguments, const TrainedBatches& trained);

}  // namespace lockstep::detail
