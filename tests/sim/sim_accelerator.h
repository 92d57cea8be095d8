// The simulated devices as an accelerator of lockstep: with this library in a program, the option accelerator
// takes "sim".
#pragma once

#include <lockstep/device/accelerator.h>

#include "sim/sim.h"

namespace lockstep::sim {

/// Four devices, which load() installs. "auto" does not choose them.
class SimAccelerator final : public Accelerator {
 public:
  std::string_view name() const override { return "sim"; }
  c10::DeviceType type() const override { return kDeviceType; }
  int count() const override { return kDevices; }
  bool is_automatic() const override { return false; }
  void load() const override;
  bool issue_gate(const c10::Stream& stream, std::shared_ptr<StreamGate> gate,
                  std::span<const at::Tensor> memory) const override;

 private:
  static constexpr int kDevices = 4;
};

/// Adds it to the table of accelerators, once.
void register_sim();

/// Adds "sim" to the table of transports, once: CommOptions::backend, whose ranks' devices are connected as NCCL
/// connects those of CUDA (device_transport.cpp).
void register_sim_transport();

}  // namespace lockstep::sim
