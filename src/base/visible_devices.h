// Which NVIDIA devices there are, and which of them this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// An NVIDIA device as the management library tells of it.
struct NvidiaDevice {
  std::string uuid = {};                ///< "GPU-..."; empty where it does not tell
  std::vector<std::string> parts = {};  ///< "MIG-..." of each part of a device in MIG mode
  std::int64_t memory_bytes = 0;        ///< its memory, or that of its smallest part; 0: unknown
};

/// All NVIDIA devices of this machine in the driver's order; none without driver or library, which is loaded
/// here and let go again.
LOCKSTEP_API std::vector<NvidiaDevice> nvml_devices();

/// The devices of which CUDA may be shown, in that order, each by a name that CUDA_VISIBLE_DEVICES takes. No
/// `variable`: all. Its entries are ordinals or unambiguous beginnings of UUIDs; what follows the first entry
/// that is neither is invisible, and a device that is named twice makes all so. A device in MIG mode stands
/// for its parts. PyTorch: torch/cuda/__init__.py _parse_visible_devices
LOCKSTEP_API std::vector<std::string> visible_nvidia_devices(const std::optional<std::string>& variable,
                                                             const std::vector<NvidiaDevice>& devices);

/// The same of this machine and process.
LOCKSTEP_API std::vector<std::string> visible_nvidia_devices();

/// The memory of the smallest of the `visible` ones, in bytes; nothing where none tells it.
LOCKSTEP_API std::optional<std::int64_t> least_nvidia_memory(const std::vector<std::string>& visible,
                                                             const std::vector<NvidiaDevice>& devices);

/// The same of this machine and process.
LOCKSTEP_API std::optional<std::int64_t> least_nvidia_memory();

}  // namespace lockstep::detail
