// A port for somebody who is told of it and takes it later.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep {

/// A TCP port that is free on all addresses of this machine, and that the system gives to nobody who does not
/// ask for it by its number: below those of connections (ip_local_port_range), which on a busy machine are
/// taken at any moment. Another each time, by chance. Where these leave no room, one that is free now.
/// @throws ConfigError when none is
LOCKSTEP_API int reserved_port();

}  // namespace lockstep
