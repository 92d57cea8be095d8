// Programs that are run for what they do or say and waited for, and where they are found.
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

/// Looks whether what `#!` of a script names can be executed: the system says of the script that it is not
/// there.
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
