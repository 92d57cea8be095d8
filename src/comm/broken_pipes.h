// Keeps a dead peer from killing us.
#pragma once

#include <csignal>

namespace lockstep::detail {

/// While this lives, threads that are started inherit a blocked SIGPIPE. Gloo and libuv write to
/// sockets as if the signal were ignored, which only Python does: without this, a write to a rank that
/// died ends the process without a word. The process's own handling of the signal stays as it is.
class BrokenPipesAreErrors {
 public:
  BrokenPipesAreErrors() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~BrokenPipesAreErrors() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BrokenPipesAreErrors(const BrokenPipesAreErrors&) = delete;
  BrokenPipesAreErrors& operator=(const BrokenPipesAreErrors&) = delete;

 private:
  sigset_t before_;
};

}  // namespace lockstep::detail
