// The little of POSIX that several files of the launcher share.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::launch {

/// @throws Error with the text of errno
[[noreturn]] inline void throw_errno(const std::string& what, const std::string& hint = {}) {
  const char* reason = std::strerror(errno);
  throw Error("launch", {.what = what, .got = reason, .hint = hint});
}

}  // namespace lockstep::launch
