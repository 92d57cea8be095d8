// All that flags and files can set in a program of ls::run().
#pragma once

#include <lockstep/cli/run.h>

namespace lockstep::detail {

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
