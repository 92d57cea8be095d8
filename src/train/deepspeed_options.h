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

/// @throws ConfigError naming both where the configuration says another micro-batch size than that of the
/// training loader
void check_batch_size(DeepSpeedConfig config, std::int64_t batch_size);

/// `own`, what the module wants, with what the configuration says in the place of what it leaves open: the
/// optimizer, and the schedule of the only optimizer. `warns`: of what it says in vain.
Optimizers completed(Optimizers own, const DeepSpeedConfig& config, bool warns);

}  // namespace lockstep::detail
