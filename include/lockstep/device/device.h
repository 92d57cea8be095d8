// On which devices a run's ranks are: the `accelerator` and `devices` options of Trainer and Fabric.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/device/devices.h>
#include <lockstep/device/inventory.h>

namespace lockstep {

/// How many ranks this node runs and on which devices.
struct DevicePlan {
  std::string accelerator = "cpu";  ///< "cpu" or "cuda"
  int count = 1;                    ///< ranks on this node, >= 1
  std::vector<int> indices =
      {};  ///< of "cuda": each local rank's, among those that are visible; of "cpu": none
};

/// Lightning's table. On "cpu", "auto" is 1 and a number is that many ranks. On "cuda" (or "gpu"), "auto"
/// and -1 are all visible devices, a number is the first so many, and a list names them. "auto" is the best
/// accelerator that lockstep runs on, which is "cpu".
/// @param under_torchelastic  it may show each process one device only: others are then not looked for
/// @throws ConfigError naming the option, the value and what there is: nothing selected, devices that are not
///         there or named twice, lists and negative numbers on "cpu"
/// Lightning: fabric/utilities/device_parser.py
LOCKSTEP_API DevicePlan parse_devices(std::string_view accelerator, const Devices& devices,
                                      const DeviceInventory& inventory = this_machine(),
                                      bool under_torchelastic = false);

/// parse_devices() for a run that starts now.
/// @throws ConfigError also for accelerators that lockstep does not run on yet
LOCKSTEP_API DevicePlan devices_to_run_on(std::string_view accelerator, const Devices& devices);

}  // namespace lockstep
