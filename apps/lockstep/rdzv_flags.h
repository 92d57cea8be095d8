// The flags of `lockstep run` about several nodes and where they meet.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include <lockstep/launch/launch.h>

/// As they were given: torchrun's names, also with `_` for `-`.
struct RdzvFlags {
  std::string nnodes = "1";
  std::optional<int> node_rank = {};
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port = {};
  bool standalone = false;
  std::string backend;
  std::string endpoint;
  std::string conf;
  std::string local_addr;
  double monitor_interval_s = 0.1;
};

void add_rdzv_flags(CLI::App& verb, RdzvFlags& flags);

/// Sets what they say of nodes, addresses and the rendezvous.
/// @throws lockstep::ConfigError naming the flag, or the key of --rdzv-conf
void apply(const RdzvFlags& flags, lockstep::ProgramOptions& options);
