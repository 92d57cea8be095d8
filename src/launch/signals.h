// Signals of the launcher: as events that the supervisor can poll for, as flags, and in the first process of
// a container.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <optional>

#include <lockstep/base/export.h>

#include "launch/posix.h"

namespace lockstep::launch {

/// A request that reached the supervisor: to stop, or to pass SIGUSR1 or SIGUSR2 on.
struct StopRequest {
  int signal = 0;
  bool from_terminal = false;  ///< the whole foreground group has got it, including the ranks

  bool is_stop() const { return signal != SIGUSR1 && signal != SIGUSR2; }
};

/// Requests to stop within this time are one: `timeout` and shells may signal a process and then its group.
inline constexpr std::chrono::milliseconds kSameRequest{200};

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

/// Makes SIGINT, SIGTERM, SIGHUP and SIGQUIT end the first process of a PID namespace as any other process,
/// unless it handles or ignores them: by default the kernel does not deliver signals that such a process does
/// not handle. Does nothing in other processes.
LOCKSTEP_API void heed_signals_as_first_process();

/// Whether a signal would end the process: by default, or as above.
bool is_default(const struct sigaction& action);

/// While it lives, `signal` only sets a flag, and calls the handler that was there before, if any. A signal
/// that was ignored stays so. Several may live at a time, also in several threads: they share the flag, and
/// the last one to go puts the earlier handler back, unless the program has put another one there meanwhile.
/// Nothing here blocks.
class LOCKSTEP_API SignalFlag {
 public:
  explicit SignalFlag(int signal);
  ~SignalFlag();
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;

  /// Raises the signal again for the handler without this flag: by default it ends the process. Does nothing
  /// where the flag is not set, an earlier handler has been called, or another SignalFlag exists. To be
  /// called last; the flag cannot be used afterwards.
  void hand_on();

 private:
  void release();

  int signal_;
  bool is_held_ = true;
};

/// Whether `signal` has arrived while a SignalFlag for it lives.
LOCKSTEP_API bool is_flagged(int signal);

/// Clears the flag, when the request has been carried out or cannot be.
LOCKSTEP_API void lower_flag(int signal);

}  // namespace lockstep::launch
