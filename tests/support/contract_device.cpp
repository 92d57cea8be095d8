#include "support/contract_device.h"

c10::DeviceType lockstep::testing::contract_device() { return c10::DeviceType::CPU; }
