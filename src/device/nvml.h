// NVIDIA's management library, which knows the devices without making CUDA unfit for forks.
#pragma once

#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// The UUIDs of all NVIDIA devices of this machine in the driver's order; none without driver or library,
/// which is loaded here and let go again.
LOCKSTEP_API std::vector<std::string> nvml_uuids();

}  // namespace lockstep::detail
