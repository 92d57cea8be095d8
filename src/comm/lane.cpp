#include "comm/lane.h"

namespace lockstep::detail {

Lane::Lane(const GroupIdentity& group)
    : id(group.id), members(group.global_ranks), place(group.name.empty() ? "" : " of group " + group.name) {}

Lane::Lane(const GroupIdentity& group, const Collective& message) {
  const bool is_send = message.kind == CollectiveKind::kSend;
  const int own = group.global_rank(), other = group.global_rank(message.root);
  members = is_send ? std::vector{own, other} : std::vector{other, own};
  id = id_of_messages(group, members[0], members[1], message.tag);
  place = " from rank " + std::to_string(members[0]) + " to rank " + std::to_string(members[1]) +
          (message.tag == 0 ? "" : ", tag " + std::to_string(message.tag)) + ",";
  partner = (is_send ? " to rank " : " from rank ") + std::to_string(other);
}

const std::shared_ptr<Lane>& MessageLanes::of(const Collective& message) {
  const std::lock_guard lock(mutex_);
  auto& lane = lanes_[{message.root, message.kind, message.tag}];
  if (lane) return lane;
  lane = std::make_shared<Lane>(identity_, message);
  if (closed_) lane->queue.close(closed_);
  if (on_new_) on_new_(lane);
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
