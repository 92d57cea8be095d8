// torchrun's variables PET_NAME, which stand for flags that are not given.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

/// Gives each flag of `verb` that torchrun has, too, and that the command line has not, the value of its
/// variable PET_NAME, as torchrun does: PET_NPROC_PER_NODE is --nproc-per-node. An empty variable is like
/// none. Those of flags that only torchrun has get a warning. A node that another launcher has placed
/// (--first-rank, --tied-to-stdin) has been told all by flags.
/// @throws lockstep::ConfigError naming a variable whose value its flag does not take
void take_pet_variables(CLI::App& verb);

/// Returns "environment variable PET_NAME" where `flag` has its value from there, else "".
std::string place_of_flag(const std::string& flag);
