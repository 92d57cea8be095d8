// What DeepSpeed's configuration sets of a Trainer's options.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizers.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Precision, accumulation, clipping and windows are what strategy deepspeed's configuration says, where
/// `options` leave them as they are by default. Returns it; does nothing under another strategy.
/// @throws ConfigError naming key and option, and both values, where they disagree
std::optional<DeepSpeedConfig> apply_deepspeed(TrainerOptions& options, int world_size);

/// What a fit trains on.
struct TrainedBatches {
  std::int64_t batch_size = 0;    ///< of the training loader, on each rank; 0: not known
  std::int64_t accumulation = 1;  ///< micro-batches per step
  int world_size = 1;
};

/// @throws ConfigError quoting the numbers where the configuration says another micro-batch size, or another
/// number of samples per step
void check_batch_size(DeepSpeedConfig config, const TrainedBatches& trained);

/// `own`, what the module wants, with what the configuration says in the place of what it leaves open: the
/// optimizer, and the schedule of the only optimizer. `steps`: of the run, if known, for a schedule whose
/// total_num_steps is "auto". `warns`: of what it says in vain.
/// @throws ConfigError for what is "auto" and nobody can fill
Optimizers completed(Optimizers own, const DeepSpeedConfig& config, std::optional<std::int64_t> steps,
                     bool warns);

}  // namespace lockstep::detail
