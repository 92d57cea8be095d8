// A piece of a test in a process of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>

namespace lockstep::test {

/// Starts `body` in a forked child, which ends with status 0, or 1 when it throws; an alarm ends it after a
/// minute. No destructor of the test runs in it. Gives the child's process id.
template <class Body>
pid_t start_forked(Body body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(60);
  try {
    body();
  } catch (const std::exception&) {
    ::_exit(1);
  }
  ::_exit(0);
}

/// Waits for the child's end: its status as waitpid() gives it.
inline int wait_for(pid_t child) {
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

}  // namespace lockstep::test
