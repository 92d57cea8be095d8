// What flags and files can set in a program of ls::run(), what only its code can give, and the keys of
// LightningCLI that mean something else here, or nothing.
#pragma once

#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_codec.h>
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

/// Rewrites `seed_everything: true` to seed 0 and `false` to none, as Lightning 2.6 means them, and takes out
/// `trainer.plugins` and `trainer.model_registry` of files that are null or empty.
/// @throws ConfigError for one that holds something: plugins are given in the program; for an option that
/// Lightning's Trainer has no more, with what to write instead
LOCKSTEP_API void take_lightning_keys(std::vector<Assignment>& assignments);

}  // namespace lockstep::detail
