// What DeepSpeed's configuration sets of a Trainer's options.
#pragma once

#include <lockstep/optim/optimizers.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Precision, accumulation, clipping and windows are what strategy deepspeed's configuration says, where
/// `options` leave them as they are by default. Does nothing under another strategy.
/// @throws ConfigError naming key and option, and both values, where they disagree
void apply_deepspeed(TrainerOptions& options, int world_size, bool is_global_zero);

/// @throws ConfigError naming both where the configuration says another micro-batch size than that of the
/// training loader
void check_deepspeed_batch(const StrategyOptions& strategy, std::int64_t batch_size);

/// `own`, what the module wants, with what the configuration says in the place of what it leaves open: the
/// optimizer, and the schedule of the only optimizer. `own` under another strategy.
Optimizers with_deepspeed(Optimizers own, const StrategyOptions& strategy);

}  // namespace lockstep::detail
