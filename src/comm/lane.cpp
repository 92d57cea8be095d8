#include "comm/lane.h"

namespace lockstep::detail {

const std::shared_ptr<Lane>& MessageLanes::of(const Collective& message) {
  const std::lock_guard lock(mutex_);
  auto& lane = lanes_[{message.root, message.kind, message.tag}];
  if (!lane) lane = make_lane(message);
  return lane;
}

std::shared_ptr<Lane> MessageLanes::make_lane(const Collective& message) const {
  auto lane = std::make_shared<Lane>();
  lane->partner = (message.kind == CollectiveKind::kSend ? " to rank " : " from rank ") +
                  std::to_string(identity_.global_rank(message.root));
  if (closed_) lane->queue.close(closed_);
  return lane;
}

std::vector<std::shared_ptr<Lane>> MessageLanes::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Lane>> all;
  for (const auto& [key, lane] : lanes_) all.push_back(lane);
  return all;
}

void MessageLanes::close(std::exception_ptr reason) {
  const std::lock_guard lock(mutex_);
  closed_ = std::move(reason);
}

}  // namespace lockstep::detail
