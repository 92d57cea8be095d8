// The little of POSIX that several files of the launcher share.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/system.h"

namespace lockstep::launch {

/// @throws Error with the text of errno
[[noreturn]] inline void throw_errno(const std::string& what, const std::string& hint = {}) {
  if (errno == EMFILE) throw too_many_open_files(what);
  const char* reason = std::strerror(errno);
  throw Error("launch", {.what = what, .got = reason, .hint = hint});
}

/// A reader that goes away and a file that may not grow must not end a launcher: its writes fail instead.
inline void ignore_refused_writes() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
}

/// As it is by default, for programs that this process executes. Safe in a signal handler.
inline void heed_refused_writes() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
}

}  // namespace lockstep::launch
