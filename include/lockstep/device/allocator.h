// What is asked of the allocator of a device beyond the memory of this process (torch_device.h).
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// Memory of a whole device, of all processes, in bytes.
struct DeviceCapacity {
  std::int64_t free = 0;   ///< that no process has taken
  std::int64_t total = 0;  ///< that there is
};

/// Zeros on the CPU, and where LibTorch's allocator does not tell. torch.cuda.mem_get_info
LOCKSTEP_API DeviceCapacity capacity_of(c10::Device device);

}  // namespace lockstep

namespace lockstep::detail {

/// Before LibTorch's library for CUDA is loaded: asks its allocator for expandable segments, beside what
/// PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF ask for; what these say of segments stays. Where it is
/// loaded with another answer, that is a warning.
LOCKSTEP_API void ask_for_expandable_segments();

}  // namespace lockstep::detail
