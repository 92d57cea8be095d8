// c10d's Gloo, which can be called off.
#pragma once

#include <stop_token>
#include <string>

#include <lockstep/comm/init.h>

#include "comm/c10d.h"
#include "comm/join/own_address.h"

namespace lockstep::detail {

/// Connects every rank with every other one. Rank and world_size of `options` are those within the group,
/// whose keys begin with `scope` in `store`. What it does fails after its abort(); copies of its sockets are
/// closed in programs that this process executes, and in forked children. Collective, blocking; told to stop,
/// it does so only while it waits for a key.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const GroupOptions& options, const std::string& scope,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    std::stop_token stop);

/// Whether the other ranks run torch.distributed.
inline bool is_pytorch(const CommOptions& options) { return options.peers == Peers::kPyTorch; }

}  // namespace lockstep::detail
