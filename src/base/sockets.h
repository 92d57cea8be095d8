// TCP connections with deadlines, and free ports.
#pragma once

#include <netdb.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep {

using Deadline = std::chrono::steady_clock::time_point;
using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// `host` without the brackets that surround an IPv6 address before a port.
LOCKSTEP_API std::string without_brackets(const std::string& host);

/// The loopback address of this machine: 127.0.0.1, or ::1 where it has only that.
/// @throws Error if the machine has neither, or its loopback interface is down
LOCKSTEP_API std::string loopback_address();

/// The TCP addresses of `host`, with brackets or without, or the system's reason why there are none. Blocks
/// as long as the system's resolver does. `flags` are those of getaddrinfo().
LOCKSTEP_API Expected<AddressList> resolve(const std::string& host, int port, int flags = 0);

/// Blocks until poll() reports one of `events` or an error on `fd`; false when the deadline passed.
LOCKSTEP_API bool await_ready(int fd, short events, Deadline deadline);

/// Whether a call on a non-blocking socket that failed with this errno may succeed later.
inline bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

/// A non-blocking connection with host:port, or the reason why there is none. Tries all addresses of the
/// host: the next one as soon as one has failed or has not answered for a moment, so that none uses up all
/// the time. Blocks until `deadline` at most, and as long as the system's resolver does. Source: RFC 8305,
/// section 5.
LOCKSTEP_API Expected<UniqueFd> connect_to(const std::string& host, int port, Deadline deadline);

/// The same with addresses that have been resolved already.
LOCKSTEP_API Expected<UniqueFd> connect_to(const addrinfo* addresses, Deadline deadline);

/// The port that a TCP socket is bound to; 0 where it is none.
LOCKSTEP_API int port_of(int socket);

/// The ports from `first` to `end` - 1.
struct PortRange {
  int first = 0;
  int end = 0;
};

/// The ports that the system gives only to those who ask for them by number: below the range `connections`,
/// or above it where it begins too low. May be empty.
LOCKSTEP_API PortRange ports_besides(PortRange connections);

/// A random TCP port that is free on all addresses of this machine and lies outside of the range from which
/// outgoing connections get theirs (ip_local_port_range), so that none of them can take it. Where no such
/// port is free, any port that is free now.
/// @throws ConfigError when none is
LOCKSTEP_API int reserved_port();

}  // namespace lockstep
