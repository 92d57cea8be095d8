// The socket that our launcher opened for rank 0, so that nobody can take its port.
#pragma once

#include <optional>

namespace lockstep::detail {

/// Takes the socket over if it listens on `port`; nothing otherwise. It can be taken once, and is no
/// business of programs that this rank may start.
std::optional<int> take_launcher_socket(int port);

}  // namespace lockstep::detail
