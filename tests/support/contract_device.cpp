#include "support/contract_device.h"

c10::DeviceType lockstep::testing::contract_device() { return c10::DeviceType::CPU; }

std::string lockstep::testing::contract_accelerator() { return "cpu"; }

std::string lockstep::testing::end_on_contract_device() { return {}; }
