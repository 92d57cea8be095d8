// Contract suites run on the CPU in one program, on simulated devices in another, and on a GPU in a third.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace lockstep::testing {

/// The kind of device that the contract suites of this program run on.
c10::DeviceType contract_device();

/// The one of rank `rank` of several.
c10::Device contract_device_of_rank(int rank);

/// By what share numbers may differ from the CPU's: 0 where bits are the same. `is_narrow` are those of 16
/// bits.
double contract_difference(bool is_narrow);

/// The accelerator of that kind, among lockstep's from then on.
std::string contract_accelerator();

/// Makes the CPU the device in use again. Returns what was wrong on the device since the last time, a line
/// each.
std::string end_on_contract_device();

}  // namespace lockstep::testing
