// Which accelerators a machine has.
#pragma once

#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// What there is to run on besides CPUs; an interface, so that what follows from the numbers can be tested
/// on any machine.
class LOCKSTEP_API DeviceInventory {
 public:
  virtual ~DeviceInventory() = default;

  /// CUDA devices that this process may see, by CUDA_VISIBLE_DEVICES. Leaves CUDA uninitialised, so that
  /// the process can still fork.
  virtual int cuda_count() const = 0;
  /// Whether memory can be had on that CUDA device, 0 <= index < cuda_count(). Initialises CUDA; blocks.
  virtual bool is_usable_cuda(int index) const = 0;
};

/// This machine, asked through NVIDIA's management library where there is one.
LOCKSTEP_API const DeviceInventory& this_machine();

/// The first `count` CUDA devices on which memory can be had, in ascending order; -1: all of them, which may
/// be none. Two processes that ask at once may be given the same, unless the devices are in exclusive mode.
/// @throws ConfigError when more are asked for than there are, or than are usable
/// Lightning: fabric/accelerators/cuda.py find_usable_cuda_devices
LOCKSTEP_API std::vector<int> find_usable_cuda_devices(int count = -1,
                                                       const DeviceInventory& inventory = this_machine());

}  // namespace lockstep
