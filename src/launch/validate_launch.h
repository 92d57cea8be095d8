// What all ways to start ranks refuse.
#pragma once

#include <lockstep/launch/launch.h>

namespace lockstep::launch {

/// @throws ConfigError naming the field that is out of range, or when this process is a rank already
void validate(const LaunchOptions& options);

}  // namespace lockstep::launch
