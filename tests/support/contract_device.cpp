#include "support/contract_device.h"

c10::DeviceType lockstep::testing::contract_device() { return c10::DeviceType::CPU; }

c10::Device lockstep::testing::contract_device_of_rank(int /*rank*/) { return {c10::DeviceType::CPU, 0}; }

double lockstep::testing::contract_difference(bool /*is_narrow*/) { return 0; }

std::string lockstep::testing::contract_accelerator() { return "cpu"; }

std::string lockstep::testing::end_on_contract_device() { return {}; }
