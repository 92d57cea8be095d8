// Signals in the first process of a container.
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

}  // namespace lockstep::launch
