// The verb `run` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <lockstep/launch/launch_options.h>

#include "binding_flags.h"
#include "host_flags.h"
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
  double shutdown_timeout_s = std::chrono::duration<double>(lockstep::kProgramGrace).count();
  std::string run_dir;
  int first_rank = -1;
  int world_size = 0;
  bool tied_to_stdin = false;
  HostFlags hosts;
  BindingFlags binding;
  std::vector<std::string> command;
  const CLI::App* verb = nullptr;  ///< knows which of them were given
};

/// Makes two words of `--flag=`, for which CLI11 would take the word behind it as its value: the program.
/// `words` are those of the command line, beginning with the verb.
void separate_empty_values(const CLI::App& verb, std::vector<std::string>& words);

/// Takes away a `--` that stands before PROGRAM, which CLI11 would take for the end of the verb. `words` are
/// those of the command line, beginning with the verb.
void drop_dashes_before_program(const CLI::App& verb, std::vector<std::string>& words);

CLI::App* add_run(CLI::App& app, RunFlags& flags);

/// Returns the exit code of the run. @throws lockstep::ConfigError naming the flag
int run(RunFlags flags);
