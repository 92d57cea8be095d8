// Which variables of this process a job on other hosts gets.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// Beginnings of the names of variables that go along: those of libraries for communication, threads and
/// tracking. DeepSpeed's EXPORT_ENVS and more.
LOCKSTEP_API std::span<const std::string_view> exported_prefixes();

/// Variables of this process that go along, then those of `.deepspeed_env` and `.lockstep_env` in the home
/// folder and in `folder`, of which later ones replace earlier ones. Lines of these files are NAME=VALUE;
/// empty lines and those that begin with `#` are skipped.
/// @throws ConfigError naming file:line and text
LOCKSTEP_API std::map<std::string, std::string> exported_variables(const std::filesystem::path& folder);

/// Only what the files say. @throws ConfigError as above
LOCKSTEP_API std::map<std::string, std::string> variables_of_files(const std::filesystem::path& folder);

}  // namespace lockstep
