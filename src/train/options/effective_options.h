// What a Trainer's options come to: some of them decide about others.
#pragma once

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Checks `options` and writes out what fast_dev_run, overfit_batches, barebones and missing limits mean.
/// @throws ConfigError naming the option, its value and what is accepted
TrainerOptions effective(TrainerOptions options);

}  // namespace lockstep::detail
