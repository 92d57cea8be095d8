// QueuedPending: what a Work waits for that was put into a lane.
#pragma once

#include <memory>
#include <utility>

#include "comm/group/group.h"
#include "comm/group/lane.h"

namespace lockstep::detail {

/// An operation in the queue of `lane`.
class QueuedPending final : public Pending {
 public:
  QueuedPending(std::shared_ptr<Lane> lane, std::shared_ptr<ProgressQueue::Task> task)
      : lane_(std::move(lane)), task_(std::move(task)) {}

  void wait() override { lane_->queue.wait(*task_); }
  /// It is carried out in any case, and nobody waits for it now.
  void rely_on() { lane_->queue.rely_on(*task_); }
  bool is_completed() const override { return lane_->queue.is_done(*task_); }

 private:
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<ProgressQueue::Task> task_;
};

}  // namespace lockstep::detail
