// What all ways to start ranks refuse.
#pragma once

#include <lockstep/launch/launch.h>

namespace lockstep::launch {

/// `options` with an address that is there, and as getaddrinfo() takes it.
/// @throws ConfigError naming the field that is out of range
LaunchOptions settled(LaunchOptions options);

/// @throws ConfigError when this process is a rank already
void refuse_in_rank();

}  // namespace lockstep::launch
