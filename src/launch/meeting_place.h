// How the launcher of a node gets to the rendezvous: as its host, or as a guest.
#pragma once

#include <memory>
#include <string>

#include "launch/rank_observer.h"
#include "launch/rendezvous_host.h"
#include "rendezvous/frame_link.h"

namespace lockstep::launch {

/// A place at the rendezvous.
struct Seat {
  std::unique_ptr<RendezvousHost> host;  ///< null: another node hosts
  rendezvous::FrameLink link;
};

/// Hosts where that is this node's part: node 0 of a static job; else whoever can listen at the endpoint,
/// which must be an address of its machine. Otherwise calls the host until it answers. Blocks until
/// `deadline`, looking at `lifeline`; a signal to stop ends the process.
/// @throws ConfigError when another job meets there; Timeout naming the endpoint when nobody answers;
///   CommError when this node must host and cannot
Seat take_seat(const RendezvousOptions& options, const JoinRequest& request, int max_restarts,
               const std::string& key, Deadline deadline, RankObserver& lifeline);

}  // namespace lockstep::launch
