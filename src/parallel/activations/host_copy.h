// HostCopy: an activation of a device that lies in page-locked memory of the host from forward to backward.
#pragma once

#include <memory>
#include <optional>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "parallel/dispatch/saved_tensors.h"

namespace lockstep::detail {

/// Copies go both ways on a stream of their own, beside what is computed. Backward uses copies in the
/// opposite order: each brings the previous one along. The host waits for none of it.
class HostCopy final : public SavedMemory {
 public:
  /// Copies `memory` as it is for the current stream. `previous`: what was copied before.
  HostCopy(const c10::Storage& memory, std::weak_ptr<HostCopy> previous);

  /// Memory of the device with these bytes, ready for the current stream.
  c10::Storage storage() override;

 private:
  void fetch();

  const at::Device device_;
  const c10::Stream stream_;
  const std::weak_ptr<HostCopy> previous_;
  at::Tensor bytes_;    // on the host
  at::Tensor fetched_;  // on the device, until it is used
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> in_use_ = {};
};

}  // namespace lockstep::detail
