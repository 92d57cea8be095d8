// Which NVIDIA devices there are, and which of them this process may use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// The UUIDs of all NVIDIA devices of this machine in the driver's order; none without driver or library,
/// which is loaded here and let go again.
LOCKSTEP_API std::vector<std::string> nvml_uuids();

/// How many devices are visible of those whose UUIDs ("GPU-...") are given in the driver's order. No
/// `variable`: all. Entries are ordinals or unambiguous beginnings of UUIDs; what follows the first entry
/// that is neither is invisible, and a device that is named twice makes all so. PyTorch:
/// torch/cuda/__init__.py _parse_visible_devices
LOCKSTEP_API int count_visible(const std::optional<std::string>& variable,
                               const std::vector<std::string>& uuids);

/// The same of this machine and process.
LOCKSTEP_API int count_visible();

}  // namespace lockstep::detail
