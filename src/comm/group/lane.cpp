#include "comm/group/lane.h"

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr std::size_t kFewLanes = 16;

std::string place_of_group(const GroupIdentity& group) {
  if (group.name.empty()) return "";
  return " of group " + group.name + " (no. " + std::to_string(group.number) + ")";
}

}  // namespace

Lane::Lane(const GroupIdentity& group)
    : id(group.id),
      barrier_id(id_of_monitored_barrier(group)),
      members(group.global_ranks),
      place(place_of_group(group)),
      issued_(std::make_shared<Count>(0)) {}

Lane::Lane(const GroupIdentity& group, const Collective& message, std::shared_ptr<Count> issued)
    : issued_(std::move(issued)) {
  const bool is_send = message.kind == CollectiveKind::kSend;
  const int own = group.global_rank(), other = group.global_rank(message.root);
  members = is_send ? std::vector{own, other} : std::vector{other, own};
  id = id_of_messages(group, members[0], members[1], message.tag);
  place = " from rank " + std::to_string(members[0]) + " to rank " + std::to_string(members[1]) +
          (message.tag == 0 ? "" : ", tag " + std::to_string(message.tag)) + place_of_group(group);
  partner = (is_send ? " to rank " : " from rank ") + std::to_string(other);
}

void Lane::begin(const char* name) {
  sequence = ++*issued_;
  activity = name;
}

std::string Lane::activity_text() const {
  const char* const name = activity;
  return name ? name + partner + " seq " + std::to_string(sequence) : "";
}

std::shared_ptr<Lane> MessageLanes::of(const Collective& message) {
  std::vector<std::shared_ptr<Lane>> idle;  // freed, which may take a moment, after the lock
  const std::lock_guard lock(mutex_);
  if (lanes_.size() >= most_) idle = take_idle();
  auto& lane = lanes_[{message.root, message.kind, message.tag}];
  if (lane) return lane;
  auto& issued = issued_[{message.root, message.kind}];
  if (!issued) issued = std::make_shared<Lane::Count>(0);
  lane = std::make_shared<Lane>(identity_, message, issued);
  if (closed_) lane->queue.close(closed_);
  if (on_new_) on_new_(lane);
  return lane;
}

// The lanes that nobody else holds; the lock keeps others from getting one meanwhile.
std::vector<std::shared_ptr<Lane>> MessageLanes::take_idle() {
  std::vector<std::shared_ptr<Lane>> idle;
  std::erase_if(lanes_, [&](const auto& each) {
    const auto& lane = each.second;
    if (lane.use_count() > 1 || !lane->queue.is_idle()) return false;
    if (on_end_) on_end_(lane);
    idle.push_back(lane);
    return true;
  });
  most_ = std::max(kFewLanes, 2 * lanes_.size());
  return idle;
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
