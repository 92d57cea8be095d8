// The verb `rerun` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

struct RerunFlags {
  std::string run;
  std::string run_dir;  ///< of the repetition; empty: beside `run`
  bool print = false;   ///< the command only
};

CLI::App* add_rerun(CLI::App& app, RerunFlags& flags);

/// Runs the program again as run.json of the run directory says, and compares the weights. Returns its exit
/// code; 1 where the weights differ.
/// @throws lockstep::ConfigError for a folder that is no run's, and for what is gone that the run was made
/// from
int rerun(const RerunFlags& flags);
