// Staging: collectives of tensors on a device over a transport that moves those of the CPU. The tensors are
// copied to page-locked memory and back on a stream of the device. Where the accelerator has gates, that
// stream waits for the thread that carries out the collective, and nobody else does; where not, whoever waits
// for the collective waits for the copies that it reads, too.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <lockstep/device/accelerator.h>

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// Where the tensors of a call are: on one device, which check_collective() has seen to. None without
/// tensors.
std::optional<at::Device> device_of(const Collective& collective);

/// One call, staged.
class StagedCollective {
 public:
  /// Issues the copies to a side stream, which waits for the current one. Returns at once.
  StagedCollective(Collective on_device, at::Device device);
  ~StagedCollective();
  StagedCollective(const StagedCollective&) = delete;
  StagedCollective& operator=(const StagedCollective&) = delete;

  /// The call on tensors of the CPU.
  const Collective& on_host() const { return on_host_; }

  /// Whether the host need not wait for the device to issue what comes after.
  bool has_gate() const { return gate_ != nullptr; }

  // For the thread that carries the call out, in this order.

  /// Blocks until on_host() can be read.
  void await_inputs();
  /// What on_host() has written may go to the device.
  void return_outputs();
  /// Lets the stream go on, also where the call was never carried out.
  void open_gate();

  // For whoever waits for the call.

  /// Makes the current stream of this thread wait for the results. Without a gate after return_outputs().
  void order_outputs();
  /// Blocks until the results are on the device.
  void await_outputs();
  /// After one of these: the call no longer refers to tensors on the device, whose memory the next ones take
  /// while the host's part is still to come. Not for a call that is replayed.
  void release_device_tensors();

 private:
  at::Tensor host_copy(const at::Tensor& tensor, bool is_read);
  std::shared_ptr<StreamGate> issue_gate() const;
  void issue_return();

  Collective on_device_;
  Collective on_host_;
  c10::Stream stream_;
  c10::Event arrived_;
  c10::Event returned_;
  std::shared_ptr<StreamGate> gate_;
  bool reads_ = false;
  bool is_ordered_ = false;
};

/// Calls that are over, until somebody may destroy them who is not needed to open gates: memory and events of
/// a device may be given back only when the device has come to rest. Thread-safe.
class RetiredCollectives {
 public:
  void add(std::shared_ptr<StagedCollective> call);
  /// Destroys them, in this thread.
  void clear();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<StagedCollective>> calls_;
};

/// Carries a call out once. Opens its gate if that does not happen, and leaves it to others to destroy.
class GateKeeper {
 public:
  GateKeeper(std::shared_ptr<StagedCollective> staged, std::shared_ptr<RetiredCollectives> retired)
      : staged_(std::move(staged)), retired_(std::move(retired)) {}
  ~GateKeeper() {
    if (!is_over_) staged_->open_gate();
    retired_->add(std::move(staged_));
  }
  GateKeeper(const GateKeeper&) = delete;
  GateKeeper& operator=(const GateKeeper&) = delete;

  template <class Execute>
  void carry_out(const Execute& execute) {
    staged_->await_inputs();
    execute(staged_->on_host());
    is_over_ = true;
    staged_->return_outputs();
  }

 private:
  std::shared_ptr<StagedCollective> staged_;
  std::shared_ptr<RetiredCollectives> retired_;
  bool is_over_ = false;
};

}  // namespace lockstep::detail
