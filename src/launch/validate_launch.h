// What all ways to start ranks refuse.
#pragma once

#include <lockstep/launch/launch.h>

namespace lockstep::launch {

/// @throws ConfigError naming the field that is out of range
void validate(const LaunchOptions& options);

/// @throws ConfigError when this process is a rank already
void refuse_in_rank();

}  // namespace lockstep::launch
