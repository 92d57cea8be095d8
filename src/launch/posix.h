// The little of POSIX that several files of the launcher share.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep::launch {

/// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

/// @throws Error with the text of errno
[[noreturn]] inline void throw_errno(const std::string& what, const std::string& hint = {}) {
  const char* reason = std::strerror(errno);
  throw Error("launch", {.what = what, .got = reason, .hint = hint});
}

}  // namespace lockstep::launch
