// The directories that users name for what lies on disk.
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// That of temporary files (TMPDIR, /tmp). @throws ConfigError naming `option`, by which users name another
LOCKSTEP_API std::filesystem::path temporary_directory(const std::string& option);

/// Warns of a `directory` that lies in memory.
LOCKSTEP_API void warn_of_tmpfs(const std::filesystem::path& directory, const std::string& option);

}  // namespace lockstep::offload
