// What `lockstep` says of a command line that it does not understand.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>

/// CLI11's refusals, in the form of ours; of words that are not known it names the nearest that are.
std::string refusal(const CLI::App* app, const CLI::Error& error);

/// @throws lockstep::ConfigError of `lockstep run`, always
[[noreturn]] void refuse_run(const std::string& what, const std::string& expected, const std::string& got,
                             const std::string& hint = {});

/// As refuse_run() of a flag that has the value `text`, which is shown in quotes.
[[noreturn]] void refuse_value(const std::string& flag, const std::string& expected, const std::string& text,
                               const std::string& hint = {});

/// What `text`, the value of a flag of `lockstep run`, means.
/// @throws lockstep::ConfigError where it could not be parsed
template <class T>
T value_of(const std::string& flag, const std::string& text, const lockstep::Expected<T>& parsed) {
  if (!parsed) refuse_value(flag, parsed.error(), text);
  return *parsed;
}

/// For verbs that take a program and its arguments, of which `word` would be the first.
/// @throws lockstep::ConfigError named after the verb where `word` begins with a dash: a flag that it has not
void refuse_flag_for_program(const CLI::App& verb, std::string_view word);
