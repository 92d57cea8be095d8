// Contract suites run on the CPU in torch_tests, and on simulated devices in sim_tests.
#pragma once

#include <c10/core/DeviceType.h>

namespace lockstep::testing {

/// The kind of device that the contract suites of this program run on.
c10::DeviceType contract_device();

}  // namespace lockstep::testing
