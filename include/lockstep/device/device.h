// On which devices a run's ranks are: the `accelerator` and `devices` options of Trainer and Fabric.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <lockstep/base/export.h>
#include <lockstep/device/devices.h>
#include <lockstep/device/inventory.h>

namespace lockstep {

/// How many ranks this node runs and on which devices.
struct DevicePlan {
  std::string accelerator = "cpu";  ///< its name in the table of accelerators
  int count = 1;                    ///< ranks on this node, >= 1
  std::vector<int> indices = {};    ///< each local rank's, among those that are visible; of "cpu": none
};

/// Lightning's table. On "cpu", "auto" is 1 and a number is that many ranks. On "cuda" (or "gpu"), "auto"
/// and -1 are all visible devices, a number is the first so many, and a list names them. The accelerator
/// "auto" is the CPU here; devices_to_run_on() looks for a better one.
/// @param under_torchelastic  it may show each process one device only: others are then not looked for
/// @throws ConfigError naming the option, the value and what there is: nothing selected, devices that are not
///         there or named twice, lists and negative numbers on "cpu"
/// Lightning: fabric/utilities/device_parser.py
LOCKSTEP_API DevicePlan parse_devices(std::string_view accelerator, const Devices& devices,
                                      const DeviceInventory& inventory = this_machine(),
                                      bool under_torchelastic = false);

/// The devices of a run that starts now on this machine: as parse_devices(), with any accelerator of the
/// table (accelerator.h). "auto" is the best one that has devices here.
/// @throws ConfigError also for an accelerator that is not there, with what was looked for
LOCKSTEP_API DevicePlan devices_to_run_on(std::string_view accelerator, const Devices& devices,
                                          bool under_torchelastic = false);

/// The device of the rank with that number on this node. A plan of one device has it for every rank: several
/// ranks can share a device, or each sees one of its own only.
/// @throws ConfigError for a rank beyond the plan's devices
LOCKSTEP_API c10::Device device_of_rank(const DevicePlan& plan, int local_rank);

}  // namespace lockstep
