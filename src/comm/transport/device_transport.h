// DeviceTransport: what moves tensors from device to device, in the order of their streams and without the
// host, as NCCL does. A row of the table of transports may have one beside its transport for tensors of the
// CPU.
#pragma once

#include <chrono>
#include <string>

#include <c10/core/Device.h>

#include "comm/c10d.h"

namespace lockstep::detail {

/// Who is to be connected, within the group, and by which of its devices.
struct DeviceConnectOptions {
  c10::intrusive_ptr<c10d::Store> store;  ///< the connection's own
  int rank = 0;
  int size = 1;
  c10::Device device = c10::Device(c10::kCPU);
  std::chrono::milliseconds timeout{};  ///< of its collectives: they are given up elsewhere, a little earlier
};

/// A kind of connection between devices, as backends of c10d, whose calls are posted to streams: a collective
/// runs behind what the current stream holds, and Work::wait() makes the current stream wait and returns.
/// abort() ends what is under way, from any thread, and may block; nothing is of further use then.
struct DeviceTransport {
  c10::DeviceType type = c10::DeviceType::CPU;
  /// Why this process has none; empty where it has. Asked again and again, as CUDA is loaded by ranks alone.
  std::string (*absence)() = nullptr;
  /// Tells the device apart from the others of its machine, whatever number this process gives it.
  std::string (*identity_of)(c10::Device device) = nullptr;
  /// Whether several ranks may have one device.
  bool (*shares_devices)() = nullptr;
  /// Connects this rank with all others. Collective, blocking. @throws what it likes
  c10::intrusive_ptr<c10d::Backend> (*connect)(const DeviceConnectOptions& options) = nullptr;
};

}  // namespace lockstep::detail
