// What a transport needs to know to connect a group.
#pragma once

#include <string>

#include <lockstep/comm/init.h>
#include <lockstep/comm/store.h>

#include "comm/waiting.h"

namespace lockstep::detail {

/// Rank and world_size are those within the group.
struct ConnectOptions : CommOptions {
  std::string own_address = {};  ///< where this rank can be reached, numeric; empty: the transport chooses
};

}  // namespace lockstep::detail
