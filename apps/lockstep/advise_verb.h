// The verb `advise` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

struct AdviseFlags {
  std::string model;  ///< a number of parameters, or where a model's weights lie
  int world = 1;
  int nodes = 1;
  std::string memory;  ///< empty: of this machine, where CPUs compute
  std::string accelerator = "cpu";
  std::string precision = "32-true";
  std::string optimizer = "AdamW";
  int batch = 0;              ///< 0: not given
  int context = 0;            ///< 0: not given
  std::string activations;    ///< empty: not measured
  std::optional<int> layers;  ///< of a model of which only a number is known
  bool json = false;
};

CLI::App* add_advise(CLI::App& app, AdviseFlags& flags);

/// Prints what each strategy takes and returns 0; without a model how `verb` is used, and 2.
/// @throws lockstep::ConfigError naming the flag
int advise(const AdviseFlags& flags, const CLI::App& verb);
