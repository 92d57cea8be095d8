// What a file store must know of its ranks, so that the last of them removes the file.
#pragma once

#include <lockstep/comm/store.h>

#include "comm/join/join_handshake.h"

namespace lockstep::detail {

/// Tells `store` that the ranks of `roll` have met in it, this process as number `rank`. From then on its
/// file is removed by whoever leaves last of those that live, where it would wait for the others for ever.
/// Nothing for other stores than those of make_file_store().
LOCKSTEP_API void set_users(const Store& store, int rank, Roll roll);

}  // namespace lockstep::detail
