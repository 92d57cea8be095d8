// Signals that a program notices when it likes, and signals in the first process of a container.
#pragma once

#include <csignal>

#include <lockstep/base/export.h>

namespace lockstep::launch {

/// The kernel keeps from the first process of a PID namespace all signals that it does not handle. From here
/// on SIGINT, SIGTERM, SIGHUP and SIGQUIT end it as they end any other process, unless it handles or ignores
/// them. Does nothing in other processes.
LOCKSTEP_API void heed_signals_as_first_process();

/// Whether a signal would end the process: by default, or as above.
bool is_default(const struct sigaction& action);

/// While it lives, `signal` sets a flag and does nothing else, but that a handler which was there before is
/// called as well. A signal that was ignored stays so. Several may live at a time, also in several threads:
/// they share the flag, and the last one to go puts the earlier handler back, unless the program has put
/// another one there meanwhile. Nothing here blocks.
class LOCKSTEP_API SignalFlag {
 public:
  explicit SignalFlag(int signal);
  ~SignalFlag();
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;

  /// Raises the signal anew, for whoever handles it without this flag: by default it ends the process. Does
  /// nothing where the flag is down, an earlier handler has been called, or another SignalFlag is there
  /// still. To be called last; the flag is of no use afterwards.
  void hand_on();

 private:
  void release();

  int signal_;
  bool is_held_ = true;
};

/// Whether `signal` has come while a SignalFlag for it lives.
LOCKSTEP_API bool is_flagged(int signal);

/// What it has asked for is done, or cannot be.
LOCKSTEP_API void lower_flag(int signal);

}  // namespace lockstep::launch
