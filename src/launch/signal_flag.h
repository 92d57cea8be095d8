// Signals that set a flag, and signals in the first process of a container.
#pragma once

#include <csignal>

#include <lockstep/base/export.h>

namespace lockstep::launch {

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
