// DeviceIssuer: collectives whose tensors are on a device.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include <c10/core/Device.h>

#include <lockstep/comm/store.h>

#include "comm/collectives/collective.h"
#include "comm/collectives/staged_collective.h"
#include "comm/group/device_link.h"
#include "comm/group/group.h"
#include "comm/group/job_mesh.h"
#include "comm/group/lane.h"
#include "comm/transport/transport.h"

namespace lockstep::detail {

class StepRecording;

/// What the first call has failed with that nobody waits for. Thread-safe.
class FirstFailure {
 public:
  void note(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

/// How a group carries out collectives on the host: in which lane, and with all checks.
struct HostExecution {
  std::function<std::shared_ptr<Lane>(const Collective&)> lane_of;
  std::function<void(Lane&, const Collective&)> execute;
};

/// Issues a group's collectives of tensors that its transport does not move. Devices carry them out
/// themselves where they are connected (device_link.h), and the group's lane compares them with those of
/// other ranks meanwhile; else they are staged through memory of the host (staged_collective.h). Which of the
/// two is settled in the first collective.
class DeviceIssuer {
 public:
  /// `collectives` is the lane of the group's collectives. What `host` refers to outlives this.
  DeviceIssuer(const TransportRow& row, const GroupIdentity& identity, const GroupContext& context,
               std::shared_ptr<Transport> transport, std::shared_ptr<Lane> collectives, HostExecution host);

  /// Whether `collective` is to be issued here.
  bool takes(const Collective& collective) const;

  /// Issues a collective that takes() is true for. Returns at once, but for the first one of the group.
  /// @throws what an earlier one has failed with
  std::shared_ptr<Pending> start(const Collective& collective);

  /// Connects the devices unless that is settled. Within a collective that is_by_devices, when the ranks have
  /// met for it. Collective, blocking.
  void connect_once(at::Device device);

  bool is_connected() const { return link_->is_connected(); }

  /// Ends what devices have under way: nothing is of further use. From any thread, also when this is gone;
  /// does not block.
  std::function<void()> abort() const {
    return [link = link_] { link->abort(); };
  }

  /// Nobody calls any more, and all lanes have ended; `in_peace` all is done. Blocks until the connection is
  /// gone.
  void close(bool in_peace) { link_->close(in_peace); }

 private:
  std::shared_ptr<Pending> start_by_devices(Collective collective);
  std::shared_ptr<ProgressQueue::Task> check_beside(const Collective& collective,
                                                    std::shared_ptr<DeviceCall> call, bool is_watched);
  void connect(at::Device device);
  std::shared_ptr<Pending> start_staged(const Collective& collective);
  std::shared_ptr<ProgressQueue::Task> push_staged(Lane& lane,
                                                   const std::shared_ptr<StagedCollective>& staged);
  std::shared_ptr<Pending> record_staged(StepRecording& recording, std::shared_ptr<StagedCollective> staged);

  const TransportRow& row_;
  GroupIdentity identity_;
  std::shared_ptr<JobMesh> job_;  // null: collectives are not checked
  Store store_;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Lane> collectives_;
  HostExecution host_;
  std::shared_ptr<FirstFailure> failure_ = std::make_shared<FirstFailure>();  // that nobody waits for
  std::shared_ptr<DeviceLink> link_;
  std::mutex posting_;  // calls of devices are posted and compared in one order
  std::shared_ptr<RetiredCollectives> retired_ = std::make_shared<RetiredCollectives>();
};

}  // namespace lockstep::detail
