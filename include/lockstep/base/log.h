// Messages to people: one line each on stderr, and all of them in a file where one is given.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// Order of importance.
enum class LogLevel {
  kDebug,    ///< what only those who look for a mistake want to know
  kInfo,     ///< what happens
  kWarning,  ///< what is probably not meant
  kError,    ///< what ends the run
  kOff       ///< nothing is written
};

/// Where messages go, and which.
struct LogConfig {
  int rank = 0;                                    ///< global rank; rank 0 alone prints info and debug lines
  int world_size = 1;                              ///< above 1, lines begin with `[rank N]`
  std::optional<LogLevel> level = {};              ///< least level shown on stderr; default: info
  std::optional<std::filesystem::path> file = {};  ///< takes every message, with time stamps; appended to
};

/// Sets up the log of this process; may be called again, in a forked child for instance. The
/// variable LOCKSTEP_LOG_LEVEL (debug, info, warning, error, off) goes before `options.level`.
/// @throws ConfigError when that variable is wrong; IoError when the file cannot be opened
LOCKSTEP_API void configure_log(const LogConfig& options);

/// Thread-safe, as all below. No thread is started: a forked child can log at once.
LOCKSTEP_API void log_debug(std::string_view text);
/// Writes a line of level kInfo.
LOCKSTEP_API void log_info(std::string_view text);
/// Writes a line of level kWarning.
LOCKSTEP_API void log_warning(std::string_view text);
/// Writes a line of level kError.
LOCKSTEP_API void log_error(std::string_view text);

/// log_warning, but only the first time that `key` is given in this process.
LOCKSTEP_API void warn_once(std::string_view key, std::string_view text);

}  // namespace lockstep
