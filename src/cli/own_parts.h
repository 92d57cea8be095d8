// What only a program's code can give, where flags and files say that it stays.
#pragma once

#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Puts into `chosen` what `code` has where `chosen` has the word `own`: loggers, profiler, cluster
/// environment of a strategy. A ddp that is picked by its name keeps the comm hook of a ddp of `code`, which
/// has no word.
/// @throws ConfigError naming an `own` for which `code` has nothing
void keep_own_parts(const TrainerOptions& code, TrainerOptions& chosen);
void keep_own_parts(const StrategyOptions& code, StrategyOptions& chosen);

}  // namespace lockstep::detail
