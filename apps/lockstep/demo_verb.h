// The verb `demo` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

CLI::App* add_demo(CLI::App& app);

/// Becomes the program that trains a classifier of handwritten digits on two ranks, with `words` as its
/// flags.
/// @throws lockstep::ConfigError where the program is not installed, and where LibTorch cannot be loaded or
/// is
///     of another version than lockstep was built for
[[noreturn]] void demo(const std::vector<std::string>& words);
