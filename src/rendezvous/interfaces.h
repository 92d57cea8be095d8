// The network interfaces of this machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep::rendezvous {

struct NetworkInterface {
  std::string name = {};
  bool is_up = false;
  bool is_loopback = false;
  std::vector<std::string> addresses = {};  ///< of IPv4 and IPv6, as numbers; none while it is down
};

/// In the kernel's order. @throws CommError where the system does not tell them
std::vector<NetworkInterface> network_interfaces();

}  // namespace lockstep::rendezvous
