// The process-wide switches of LibTorch that a Trainer's options ask for.
#pragma once

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// deterministic and benchmark; what is not asked for stays as it is.
void apply_determinism(const TrainerOptions& options);

}  // namespace lockstep::detail
