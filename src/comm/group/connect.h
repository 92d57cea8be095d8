// Ranks connected by Gloo, over any network.
#pragma once

#include <memory>

#include <lockstep/comm/init.h>

#include "comm/group/group.h"
#include "comm/join/join_handshake.h"

namespace lockstep::detail {

/// Connects every rank with every other one through `store`, after the roll call; `roll` is empty with ranks
/// of PyTorch. Collective, blocking.
/// @throws PeerLost naming a rank that has gone since; Timeout, CommError
std::shared_ptr<Group> make_gloo_group(const CommOptions& options, const Store& store, const Roll& roll);

}  // namespace lockstep::detail
