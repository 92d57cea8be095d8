// Where this rank listens for the others, for tensors and for control.
#pragma once

#include <string>

#include <lockstep/comm/init.h>

namespace lockstep::detail {

/// What a group needs to know to connect.
struct GroupOptions : CommOptions {
  std::string own_address = {};  ///< numeric; empty: what Gloo chooses
};

/// `options` with the address of the interface that GLOO_SOCKET_IFNAME names, or else of the one that leads
/// to the main address. Where the main address is a name that stands for the loopback on its own machine, as
/// on a fresh Debian, it is the one at which ranks of other machines see that machine. Collective; blocks
/// until all ranks that have to say something have said it.
/// @throws CommError where there is none; Timeout
GroupOptions with_own_address(const CommOptions& options, Store store);

/// The same among ranks of PyTorch, who say nothing of it.
GroupOptions with_own_address(const CommOptions& options);

/// "rank 1 listens at 10.0.0.2 (eth0); GLOO_SOCKET_IFNAME chooses another interface"
std::string listening_text(const GroupOptions& options, int rank);

/// Whether the address, as text, is one of the loopback's.
bool is_loopback(const std::string& address);

}  // namespace lockstep::detail
