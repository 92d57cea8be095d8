// What flags and files can set in a program of ls::run(), and what only its code can give.
#pragma once

#include <lockstep/cli/run.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// Puts into `chosen` what `code` has where `chosen` has the word `own`: loggers, profiler, cluster
/// environment of a strategy. A ddp that is picked by its name keeps the comm hook of a ddp of `code`, which
/// has no word.
/// @throws ConfigError naming an `own` for which `code` has nothing
void keep_code_only_options(const TrainerOptions& code, TrainerOptions& chosen);
void keep_code_only_options(const StrategyOptions& code, StrategyOptions& chosen);

/// But for the program's own options.
struct Settings {
  TrainerOptions trainer = {};
  FabricOptions fabric = {};
  RunOptions run = {};
  TuneOptions tune = {};
};

/// Borrows both, and the program's own options.
OptionTree tree_of(Program& program, Settings& settings);

}  // namespace lockstep::detail
