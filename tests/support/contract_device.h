// Contract suites run on the CPU in one program, and on simulated devices in another.
#pragma once

#include <string>

#include <c10/core/DeviceType.h>

namespace lockstep::testing {

/// The kind of device that the contract suites of this program run on.
c10::DeviceType contract_device();

/// The accelerator of that kind, among lockstep's from then on.
std::string contract_accelerator();

/// Makes the CPU the device in use again. Returns what was wrong on the device since the last time, a line
/// each.
std::string end_on_contract_device();

}  // namespace lockstep::testing
