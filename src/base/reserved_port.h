// A port for somebody who is told of it and takes it later.
#pragma once

#include <lockstep/base/export.h>

namespace lockstep {

/// From `first` to `end` - 1.
struct PortRange {
  int first = 0;
  int end = 0;
};

/// Those that the system gives to nobody who does not ask for one by its number: below those of
/// `connections`, or above where these begin too low. May be empty.
LOCKSTEP_API PortRange ports_besides(PortRange connections);

/// A TCP port that is free on all addresses of this machine, of ports_besides() those of connections
/// (ip_local_port_range), which on a busy machine are taken at any moment. Another each time, by chance.
/// Where these leave no room, one that is free now.
/// @throws ConfigError when none is
LOCKSTEP_API int reserved_port();

}  // namespace lockstep
