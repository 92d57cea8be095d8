// CUDA_VISIBLE_DEVICES, as CUDA reads it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// How many devices are visible of those whose UUIDs ("GPU-...") are given in the driver's order. No
/// `variable`: all. Entries are ordinals or unambiguous beginnings of UUIDs; what follows the first entry
/// that is neither is invisible, and a device that is named twice makes all so. PyTorch:
/// torch/cuda/__init__.py _parse_visible_devices
LOCKSTEP_API int count_visible(const std::optional<std::string>& variable,
                               const std::vector<std::string>& uuids);

}  // namespace lockstep::detail
