// The version of lockstep.
#pragma once

namespace lockstep {

/// Version of the headers that a program was compiled with.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace lockstep
