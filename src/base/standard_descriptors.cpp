#include "base/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep {
namespace {

bool is_closed(int fd) { return ::fcntl(fd, F_GETFD) < 0 && errno == EBADF; }

// Without a /dev, as in some containers, the number is taken all the same; writing there then fails.
int open_nothing() {
  const int fd = ::open("/dev/null", O_RDWR);
  return fd >= 0 ? fd : ::open("/", O_PATH);
}

// Before the static objects of this library and of the program, which may open files.
__attribute__((constructor(101))) void occupy_at_load() { occupy_standard_descriptors(); }

}  // namespace

// The lowest one that is free is what open() takes, and those below are open by then.
void occupy_standard_descriptors() {
  const int error = errno;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (is_closed(fd)) open_nothing();
  errno = error;
}

}  // namespace lockstep
