// What a shell would execute.
#pragma once

#include <filesystem>
#include <string>

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

}  // namespace lockstep::launch
