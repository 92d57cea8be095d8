// What a collective accepts.
#pragma once

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// @throws CommError naming collective, tensor and what is wrong with it, for rank `rank` of `size`
void check_collective(const Collective& collective, int rank, int size);

/// Whether collectives take tensors of this type.
bool is_carried(at::ScalarType dtype);

}  // namespace lockstep::detail
