// What drifts between LibTorch 2.11 and 2.14, in one place; but what drifts in c10d is in src/comm/compat.h.
#pragma once

#include <memory>

#include <c10/core/Device.h>
#include <c10/core/StorageImpl.h>

namespace lockstep::detail {

/// Takes release_data_and_set_meta_custom_data_ptr_error_msg_() back: `storage` may be given memory again.
/// LibTorch before 2.13 has no public function for that.
void allow_access(c10::StorageImpl& storage);

/// Work on the current stream of the current device, recorded between begin() and end() and issued by
/// replay().
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void begin() = 0;
  /// @throws c10::Error naming what could not be recorded
  virtual void end() = 0;
  /// In place of end(), where what was to be recorded has failed.
  virtual void abandon() = 0;
  /// Whether the device is as before then. LibTorch leaves its allocators of CUDA in the middle of a capture.
  virtual bool can_be_abandoned() const = 0;
  virtual void replay() = 0;
};

/// Null where LibTorch has no graphs for such devices. LibTorch before 2.13 has none that serve all kinds.
std::unique_ptr<DeviceGraph> make_graph(c10::Device device);

}  // namespace lockstep::detail
