// The flags of `lockstep run` for jobs on several hosts, and what is done with them.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

/// DeepSpeed's names, and ours for the remote shell.
struct HostFlags {
  std::string hostfile;
  std::string include;
  std::string exclude;
  bool force_multi = false;
  std::string ssh;
  int ssh_port = 0;
  std::string ssh_args;
  double ssh_timeout_s = 60;
  bool elastic_training = false;
  std::optional<int> min_elastic_nodes;
};

void add_host_flags(CLI::App& verb, HostFlags& flags);

struct RunFlags;

/// What --hostfile makes of a run: nothing where it is not given or names one host, which is taken for this
/// one; then `flags` and the environment are what the host file says. Else the exit code of the job.
/// @throws lockstep::ConfigError naming file:line, or the flag that the host file answers already
std::optional<int> run_on_other_hosts(RunFlags& flags);
