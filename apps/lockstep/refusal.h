// What `lockstep` says of a command line that it does not understand.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

/// CLI11's refusals, in the form of ours; of words that are not known it names the nearest that are.
std::string refusal(const CLI::App* app, const CLI::Error& error);

/// For verbs that take a program and its arguments, of which `word` would be the first.
/// @throws lockstep::ConfigError named after the verb where `word` begins with a dash: a flag that it has not
void refuse_flag_for_program(const CLI::App& verb, std::string_view word);
