// Keeps a dead peer from killing us.
#pragma once

#include <csignal>
#include <ctime>

namespace lockstep::detail {

/// While this lives, SIGPIPE is blocked in this thread and in those that it starts. Gloo and libuv write
/// to sockets as if the signal were ignored, which only Python does: without this, a write to a rank that
/// died ends the process without a word. The process's own handling of the signal stays as it is.
class BrokenPipesAreErrors {
 public:
  BrokenPipesAreErrors() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  // A signal that came meanwhile would be delivered now: it is taken away first.
  ~BrokenPipesAreErrors() {
    if (sigismember(&before_, SIGPIPE)) return;
    const timespec at_once{};
    sigtimedwait(&pipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipesAreErrors(const BrokenPipesAreErrors&) = delete;
  BrokenPipesAreErrors& operator=(const BrokenPipesAreErrors&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

}  // namespace lockstep::detail
