// What a shell would execute.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::launch {

/// The file that a shell would execute for `name`.
/// @throws ConfigError naming the program and why it cannot be executed
std::filesystem::path find_program(const std::string& name);

/// @throws ConfigError as find_program()
[[noreturn]] void refuse_program(const std::string& name, const std::string& why);

}  // namespace lockstep::launch
