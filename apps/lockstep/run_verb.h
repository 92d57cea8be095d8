// The verb `run` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "rdzv_flags.h"

/// The flags of `lockstep run` as they were given: torchrun's names, also with `_` for `-`.
struct RunFlags {
  RdzvFlags rdzv;
  std::string nproc_per_node = "1";
  bool no_python = false;
  bool module = false;
  int max_restarts = 0;
  std::string rdzv_id = "none";
  std::string role = "default";
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
  double shutdown_timeout_s = 30;
  std::string run_dir;
  std::vector<std::string> command;
};

CLI::App* add_run(CLI::App& app, RunFlags& flags);

/// Returns the exit code of the run. @throws lockstep::ConfigError naming the flag
int run(const RunFlags& flags);
