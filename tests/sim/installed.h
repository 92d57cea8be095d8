// For tests of the simulated devices: they are installed before the first test runs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/torch.h>

#include "sim/sim.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {

inline const c10::Device kSim(kDeviceType, 0);

inline at::Tensor on_sim(const at::Tensor& tensor) { return tensor.to(kSim); }
inline at::Tensor on_cpu(const at::Tensor& tensor) { return tensor.to(at::kCPU); }
inline at::TensorOptions sim_floats() { return at::TensorOptions(kSim).dtype(at::kFloat); }

/// Makes `to` wait for what has been issued to `from`.
inline void order(c10::Stream from, c10::Stream to) {
  c10::Event event(kDeviceType);
  event.record(from);
  event.block(to);
}

/// Starts each test on the default stream, without delays that another one has chosen, and without its
/// reports.
class SimTest : public ::testing::Test {
 protected:
  SimTest() {
    at::set_num_threads(1);
    c10::impl::VirtualGuardImpl(kDeviceType).exchangeStream(stream(0, 0));
    set_delays(1, std::chrono::microseconds(50));
    take_reports();
    take_host_syncs();
    reset_counters();
  }
};

/// With lockstep on the simulated device, and no reports at the end.
class SimDeviceTest : public SimTest {
 protected:
  SimDeviceTest() {
    register_sim();
    detail::begin_on_device(*find_accelerator("sim"), kSim);
  }
  ~SimDeviceTest() override {
    detail::begin_on_device(*find_accelerator("cpu"), at::kCPU);
    EXPECT_THAT(take_reports(), ::testing::IsEmpty());
  }
};

}  // namespace lockstep::sim
