// TCP sockets as those need them who connect with a deadline, and ports that nobody else takes.
#pragma once

#include <netdb.h>

#include <chrono>
#include <memory>
#include <string>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep {

using Deadline = std::chrono::steady_clock::time_point;
using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// `host` without the brackets in which addresses of IPv6 stand before a port.
LOCKSTEP_API std::string without_brackets(const std::string& host);

/// The address at which this machine reaches itself: 127.0.0.1, unless it has ::1 alone.
/// @throws Error if it has neither, or its loopback interface is down
LOCKSTEP_API std::string loopback_address();

/// The TCP addresses of `host`, with brackets or without, or the system's reason why there are none. Blocks
/// as long as the system's resolver does. `flags`: getaddrinfo()'s.
LOCKSTEP_API Expected<AddressList> resolve(const std::string& host, int port, int flags = 0);

/// Blocks until one of poll()'s `events`, or an error, is there; false when the deadline passed.
LOCKSTEP_API bool await_ready(int fd, short events, Deadline deadline);

/// A connection with host:port that does not block, or why there is none. Tries all addresses of the host:
/// the next one when one has failed or has been silent for a moment, so that none takes all the time. Blocks
/// until `deadline` at most, and as long as the system's resolver does. Source: RFC 8305, section 5.
LOCKSTEP_API Expected<UniqueFd> connect_to(const std::string& host, int port, Deadline deadline);

/// The same with addresses that are known already, to the end of the list.
LOCKSTEP_API Expected<UniqueFd> connect_to(const addrinfo* addresses, Deadline deadline);

/// The port that a TCP socket is bound to; 0 where it is none.
LOCKSTEP_API int port_of(int socket);

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
