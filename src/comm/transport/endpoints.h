// Where the ranks of a group can be called, exchanged in their store.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include <lockstep/comm/store.h>

#include "comm/transport/transport.h"
#include "rendezvous/mesh_sockets.h"

namespace lockstep::detail {

/// Tells the others that this rank listens at `own`, under the key `prefix` and its rank, and returns the
/// endpoints of all, by rank. Collective, blocking.
/// @throws Timeout naming the rank, by its number in the job, that does not say; CommError soon after `stop`
std::vector<rendezvous::Endpoint> exchange_endpoints(Store& store, const std::string& prefix,
                                                     const ConnectOptions& options,
                                                     const rendezvous::Endpoint& own,
                                                     const std::stop_token& stop = {});

}  // namespace lockstep::detail
