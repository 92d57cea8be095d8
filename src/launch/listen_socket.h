// The socket at which rank 0 will be reached, bound before any rank exists so that nobody else can
// take its port in between.
#pragma once

#include <span>
#include <string>

#include "launch/posix.h"

namespace lockstep::launch {

/// A listening TCP socket and the port it got. Closed in programs that a rank executes.
struct ListenSocket {
  UniqueFd fd;
  int port = 0;
};

/// Listens on `port` (0: a free one) of the first of `addresses` that can be listened on.
/// @throws Error naming address, port and reason
ListenSocket listen_on(std::span<const std::string> addresses, int port);

}  // namespace lockstep::launch
