// The flags of `lockstep run` that tie ranks to processors.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include <lockstep/launch/binding.h>

/// DeepSpeed's names, and torchrun's.
struct BindingFlags {
  bool cores = false;
  std::optional<std::string> core_list;
  std::string numa;
};

void add_binding_flags(CLI::App& verb, BindingFlags& flags);

/// @throws lockstep::ConfigError naming the flag, or the variable that would undo it
lockstep::BindingOptions binding_of(const BindingFlags& flags);
