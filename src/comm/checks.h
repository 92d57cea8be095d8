// What a collective accepts.
#pragma once

#include "comm/group.h"

namespace lockstep::detail {

/// @throws CommError naming collective, tensor and what is wrong with it, for a group of `size` ranks
void check_collective(const Collective& collective, int size);

}  // namespace lockstep::detail
