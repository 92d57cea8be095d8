// NVIDIA's driver, asked through its own library: why CUDA has no devices here.
#pragma once

#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Why a program of CUDA version `needed` (13000 for 13.0; 0 for any) has no devices in this process; nothing
/// where it should have some. Where the driver is to be started, which must not happen in a process that
/// is to fork, also what it says of that.
LOCKSTEP_API std::optional<ErrorParts> fault_of_nvidia_driver(int needed, bool is_started);

}  // namespace lockstep::detail
