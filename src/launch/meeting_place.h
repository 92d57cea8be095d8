// How the launcher of a node gets to the rendezvous: as its host, or as a guest.
#pragma once

#include <memory>
#include <string>

#include "launch/launcher_events.h"
#include "launch/rendezvous_host.h"
#include "rendezvous/frame_link.h"
#include "rendezvous/tcp_endpoint.h"

namespace lockstep::launch {

/// A place at the rendezvous.
struct Seat {
  std::unique_ptr<RendezvousHost> host;  ///< null: another node hosts
  rendezvous::FrameLink link;
  rendezvous::TcpEndpoint endpoint;  ///< of the host as it is reached from here
};

/// Hosts where that is this node's part: node 0 of a static job; else whoever can listen at the endpoint,
/// which must be an address of its machine, but where options.is_host says so: then all addresses of the
/// machine will do. Otherwise calls the host until it answers. Blocks until `deadline`, heeding `events`; a
/// signal to stop ends the process.
/// @throws ConfigError when another job meets there, or another program has the port; Timeout naming the
///   endpoint when nobody answers; CommError when this node must host and cannot
Seat take_seat(const RendezvousOptions& options, const JoinRequest& request, int max_restarts,
               const std::string& key, Deadline deadline, const LauncherEvents& events);

}  // namespace lockstep::launch
