// Runs a program and waits for its output, and finds programs by name.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::launch {

/// The file that a shell would execute for `name`.
/// @throws ConfigError naming the program and why it cannot be executed
std::filesystem::path find_program(const std::string& name);

/// Checks that the interpreter in the `#!` line of a script can be executed: the system would report the
/// script itself as missing.
/// @throws ConfigError naming both
void require_interpreter(const std::filesystem::path& program);

/// @throws ConfigError as find_program()
[[noreturn]] void refuse_program(const std::string& name, const std::string& why);

struct CommandResult {
  int status = 0;      ///< exit code, or 128 + the signal that ended it
  std::string output;  ///< what it wrote on stdout and stderr, no more than the first 4096 bytes
};

/// Runs `words.front()`, a path or a name that PATH leads to, with the other words as arguments; no shell is
/// involved. Its stdin is empty, its signals are as they are by default. Blocks until it has ended.
/// @throws Error when it cannot be started, and when it has not ended within `deadline`; it is killed then
LOCKSTEP_API CommandResult run_command(const std::vector<std::string>& words,
                                       std::chrono::milliseconds deadline);

}  // namespace lockstep::launch
