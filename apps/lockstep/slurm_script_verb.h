// The verb `slurm-script` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include <lockstep/launch/slurm_script.h>

struct SlurmScriptFlags {
  lockstep::SlurmScriptOptions options;
  bool no_requeue = false;
  std::string output;  ///< empty: stdout
};

CLI::App* add_slurm_script(CLI::App& app, SlurmScriptFlags& flags);

/// Writes the script, and makes the folder of its logs, which SLURM does not.
/// @throws lockstep::ConfigError naming the flag; lockstep::IoError
int write_slurm_script(const SlurmScriptFlags& flags);
