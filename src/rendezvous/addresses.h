// The addresses of this machine, and those of servers: HOST:PORT, and sockets that listen there.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"

namespace lockstep::rendezvous {

/// An address of IPv4 or IPv6.
struct LOCKSTEP_API Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  /// The numeric address.
  std::string text() const;
  bool is_loopback() const;
};

/// The addresses of this machine and another one on the route between them.
struct Route {
  Address own;
  Address there;
};

/// The route to `host`, found without sending anything. Blocks as long as the system's resolver does.
/// @throws CommError where its name cannot be resolved, or no interface leads there
LOCKSTEP_API Route route_to(const std::string& host);

/// The address of the interface `name`. @throws CommError where it has none
LOCKSTEP_API Address address_of_interface(const std::string& name);

/// An address at which other machines may reach this one, whatever its host name resolves to; the loopback
/// address where there is none. @throws CommError where there are no addresses at all
LOCKSTEP_API Address address_for_others();

/// Whether `host` is a name, other than localhost, that resolves to the loopback address alone, as the host
/// name of a fresh Debian does: other machines may resolve it to an address of this machine.
LOCKSTEP_API bool is_name_of_loopback(const std::string& host);

/// The interface with the address `text`; empty: none.
LOCKSTEP_API std::string interface_with(const std::string& text);

/// A host by name or address, and a TCP port of it.
struct LOCKSTEP_API TcpEndpoint {
  std::string host;
  int port = 0;

  /// `host:port`; an IPv6 address in brackets.
  std::string text() const;

  bool operator==(const TcpEndpoint&) const = default;
};

/// HOST[:PORT], [IPV6][:PORT] or an IPv6 address alone.
/// @returns what was expected where `text` is none of them
LOCKSTEP_API Expected<TcpEndpoint> parse_endpoint(std::string_view text, int default_port);

/// Listening sockets, one for each address and at least one, and their endpoint.
struct BoundSocket {
  std::vector<UniqueFd> fds;
  TcpEndpoint endpoint;  ///< with the port that they got; an address at which this machine reaches them
};

/// Why this process cannot listen at an endpoint.
struct ListenFailure {
  int error = 0;  ///< errno; 0: the host name cannot be resolved, or not yet
  std::string text = {};
};

/// Listens on all addresses of `endpoint.host` that are this machine's, and on no others; where another
/// program has the port at one of them, on none. Port 0: a free one.
LOCKSTEP_API Expected<BoundSocket, ListenFailure> try_listen(const TcpEndpoint& endpoint);

/// The same on all addresses of this machine.
LOCKSTEP_API Expected<BoundSocket, ListenFailure> try_listen_everywhere(int port);

/// try_listen(), again and again while another program has the port or the host is not known, until
/// `deadline`. Blocks.
/// @throws CommError naming the endpoint and the reason
LOCKSTEP_API BoundSocket listen_by(const TcpEndpoint& endpoint, Deadline deadline);

/// What listen_by() throws.
LOCKSTEP_API CommError listen_error(const TcpEndpoint& endpoint, const ListenFailure& failure);

// How the TCP connections of a job are tuned.

/// For messages that are small and awaited. A machine that vanished is noticed after 11 s: by unanswered
/// probes while nothing is under way, and by what is not acknowledged once something is.
void tune_socket(int fd);

}  // namespace lockstep::rendezvous
