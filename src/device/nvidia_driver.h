// NVIDIA's driver, asked through its own library: why CUDA has no devices here, and which can be used.
#pragma once

#include <optional>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Why a program of CUDA version `needed` (13000 for 13.0; 0 for any) has no devices in this process; nothing
/// where it should have some. Where the driver is to be started, which must not happen in a process that
/// is to fork, also what it says of that.
LOCKSTEP_API std::optional<ErrorParts> fault_of_nvidia_driver(int needed, bool is_started);

/// Whether the driver gives memory on the device that CUDA_VISIBLE_DEVICES calls `name` and that is the one
/// with that index here; false where another process has it for itself (exclusive mode), or nobody may use
/// it. A process of its own tries, since one that has started the driver cannot be forked; where this one
/// has, it tries itself. Blocks.
LOCKSTEP_API bool has_usable_memory(const std::string& name, int index);

}  // namespace lockstep::detail
