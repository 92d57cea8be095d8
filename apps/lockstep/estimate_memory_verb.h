// The verb `estimate-memory` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

struct EstimateMemoryFlags {
  std::string model;          ///< a number of parameters, or where a model's weights lie
  std::string largest_layer;  ///< empty: none given
  int world = 1;
  int nodes = 1;
  int stage = 2;
  std::string offload = "any";
  double buffer_factor = 1.5;
};

CLI::App* add_estimate_memory(CLI::App& app, EstimateMemoryFlags& flags);

/// Prints DeepSpeed's table and returns 0; without a model how `verb` is used, and 2.
/// @throws lockstep::ConfigError naming the flag
int estimate_memory(const EstimateMemoryFlags& flags, const CLI::App& verb);
