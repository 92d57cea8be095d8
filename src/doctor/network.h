// How this machine is reached by others: names, addresses, ports. Facts are read from the system by the
// functions that end in _facts, and judged by judge().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "doctor/findings.h"
#include "rendezvous/interfaces.h"

namespace lockstep::doctor {

/// A host as the system's resolver knows it.
struct HostFacts {
  std::string name = {};
  bool is_own = false;                      ///< it is the name of this machine
  std::vector<std::string> addresses = {};  ///< as numbers, each once
  bool is_loopback_only = false;            ///< all of them are this machine's loopback
  std::string failure = {};                 ///< of the resolver; empty: it has addresses
  double resolver_s = 0;                    ///< seconds until it had answered
  std::string route = {};                   ///< the address by which this machine reaches it
  std::string route_failure = {};           ///< why no interface leads there
};
/// Blocks as long as the system's resolver does. Sends nothing to the host.
LOCKSTEP_API HostFacts host_facts(const std::string& name, bool is_own);
LOCKSTEP_API Findings judge(const HostFacts& facts);

struct InterfaceFacts {
  std::vector<rendezvous::NetworkInterface> interfaces = {};
  std::string failure = {};     ///< why they could not be listed
  std::string for_others = {};  ///< the address at which other machines may reach this one; may be empty
  std::optional<std::string> named = {};  ///< GLOO_SOCKET_IFNAME
};
InterfaceFacts interface_facts();
LOCKSTEP_API Findings judge(const InterfaceFacts& facts);

struct PortFacts {
  int free_port = 0;         ///< 0: none
  std::string failure = {};  ///< why there is none
  std::map<int, std::string> taken =
      {};  ///< of those that launchers take unless told otherwise; with the reason
};
PortFacts port_facts();
LOCKSTEP_API Findings judge(const PortFacts& facts);

}  // namespace lockstep::doctor
