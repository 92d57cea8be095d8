// Helpers around POSIX functions that several files of the launcher share.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/system.h"

namespace lockstep::launch {

// Exit codes as shells have them.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitCannotExecute = 127;
inline constexpr int kExitSignalled = 128;  ///< plus the number of the signal

/// @throws Error with the text of errno
[[noreturn]] inline void throw_errno(const std::string& what, const std::string& hint = {}) {
  if (errno == EMFILE) throw too_many_open_files(what);
  const char* reason = std::strerror(errno);
  throw Error("launch", {.what = what, .got = reason, .hint = hint});
}

/// Ignores SIGPIPE and SIGXFSZ, so that writes to a closed pipe or a full file fail instead of ending the
/// launcher.
inline void ignore_refused_writes() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

/// Restores the default of these signals, for programs that this process executes. Safe in a signal handler.
inline void heed_refused_writes() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
}

}  // namespace lockstep::launch
