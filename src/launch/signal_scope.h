// Signals as events that the supervisor can poll for.
#pragma once

#include <array>
#include <csignal>
#include <optional>

#include "launch/posix.h"

namespace lockstep::launch {

/// A request that reached the supervisor: to stop, or to pass SIGUSR1 or SIGUSR2 on.
struct StopRequest {
  int signal = 0;
  bool from_terminal = false;  ///< the whole foreground group has got it, including the ranks

  bool is_stop() const { return signal != SIGUSR1 && signal != SIGUSR2; }
};

/// While it lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 (where not ignored) become
/// StopRequests, by handlers and a pipe rather than signalfd, which misses signals that another thread of the
/// program takes. SIGCHLD has its default meaning meanwhile, since a program that ignores it would lose the
/// status of its children. One at a time per process.
class SignalScope {
 public:
  SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;
  ~SignalScope();

  /// Readable while a StopRequest waits.
  int fd() const { return read_end_.get(); }
  std::optional<StopRequest> next();

  /// Between these two no signal is delivered, so that none is handled by a child just forked.
  void hold();
  void release();
  /// In a child, after hold() of its parent: restores the signals as they were before the scope.
  void restore_in_child();
  /// In a child that continues with this scope: from now on it gets its own signals, and none is missed.
  /// @throws Error without descriptors
  void renew_in_child();

 private:
  void make_pipe();
  void restore_handlers();

  UniqueFd read_end_;
  UniqueFd write_end_;
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

  std::array<struct sigaction, kSignals.size()> old_{};
  struct sigaction old_child_ {};
  sigset_t old_mask_{};
};

}  // namespace lockstep::launch
