// Installs the devices in a test program, after its copy for ranks was forked.
#include <gtest/gtest.h>

#include <lockstep/base/env.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>

#include "sim/sim.h"
#include "sim/sim_accelerator.h"
#include "support/contract_device.h"

namespace lockstep::sim {
namespace {

struct Installed : ::testing::Environment {
  void SetUp() override {
    // Ranks of a contract suite are processes where their devices are connected, with a device each.
    install({.devices = env::get("CONTRACT_RANK") ? 4 : 2});
    register_sim_transport();
    install_autograd_engine();  // before a backward pass starts threads
  }
  void TearDown() override { set_delays(1, std::chrono::microseconds(0)); }  // waits for all kernels
};

[[maybe_unused]] const auto* const kInstalled = ::testing::AddGlobalTestEnvironment(new Installed);

}  // namespace
}  // namespace lockstep::sim

c10::DeviceType lockstep::testing::contract_device() { return sim::kDeviceType; }

// Devices that are connected are not shared.
c10::Device lockstep::testing::contract_device_of_rank(int rank) {
  return {sim::kDeviceType, static_cast<c10::DeviceIndex>(rank)};
}

double lockstep::testing::contract_difference(bool /*is_narrow*/) { return 0; }

std::string lockstep::testing::contract_accelerator() {
  sim::register_sim();
  return "sim";
}

std::string lockstep::testing::end_on_contract_device() {
  detail::begin_on_device(*find_accelerator("cpu"), at::kCPU);
  std::string lines;
  for (const auto& report : sim::take_reports()) lines += report + "\n";
  return lines;
}
