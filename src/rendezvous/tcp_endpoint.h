// Where a server listens: HOST:PORT.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"

namespace lockstep::rendezvous {

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

/// A socket that listens, and where.
struct BoundSocket {
  UniqueFd fd;
  TcpEndpoint endpoint;  ///< with the port that it got
};

/// Why nobody listens there.
struct ListenFailure {
  int error = 0;  ///< errno; 0: the host is not known
  std::string text = {};
};

/// Listens on the addresses of `endpoint.host` that are this machine's, the first that can be had, and on
/// that one alone. Port 0: a free one.
LOCKSTEP_API Expected<BoundSocket, ListenFailure> try_listen(const TcpEndpoint& endpoint);

/// The same, again and again while another program has the port, until `deadline`. Blocks.
/// @throws CommError naming the endpoint and the reason
LOCKSTEP_API BoundSocket listen_by(const TcpEndpoint& endpoint, Deadline deadline);

}  // namespace lockstep::rendezvous
