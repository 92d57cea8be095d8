// Ranks connected by Gloo, over any network.
#pragma once

#include <memory>

#include <lockstep/comm/init.h>

#include "comm/group.h"

namespace lockstep::detail {

/// Connects every rank with every other one through `store`. Collective, blocking.
std::shared_ptr<Group> make_gloo_group(const CommOptions& options, const Store& store);

}  // namespace lockstep::detail
