#include "launch/node_claims.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kTimeToAnswer{2000};

}  // namespace

void NodeClaims::add(Claim claim, const JoinRequest& theirs, Time now) {
  const bool is_same_host = claim.request.host == theirs.host && !theirs.boot_id.empty();
  const bool has_started_anew = claim.request.boot_id != theirs.boot_id;
  if (is_same_host) claim.ends_at = has_started_anew ? now : now + kTimeToAnswer;
  claims_.push_back(std::move(claim));
}

bool NodeClaims::contains(Node newcomer) const {
  return std::ranges::find(claims_, newcomer, &Claim::newcomer) != claims_.end();
}

void NodeClaims::forget(Node newcomer) {
  std::erase_if(claims_, [&](const Claim& each) { return each.newcomer == newcomer; });
}

std::vector<NodeClaims::Claim> NodeClaims::take(Node holder) {
  std::vector<Claim> taken;
  for (const auto& each : claims_)
    if (each.holder == holder) taken.push_back(each);
  std::erase_if(claims_, [&](const Claim& each) { return each.holder == holder; });
  return taken;
}

std::optional<NodeClaims::Time> NodeClaims::next_deadline() const {
  std::optional<Time> next;
  for (const auto& each : claims_)
    if (each.ends_at) next = std::min(*each.ends_at, next.value_or(*each.ends_at));
  return next;
}

std::vector<NodeClaims::Node> NodeClaims::silent_holders(Time now) const {
  std::vector<Node> silent;
  for (const auto& each : claims_)
    if (each.ends_at && *each.ends_at <= now) silent.push_back(each.holder);
  return silent;
}

void NodeClaims::excuse_silence(Time now) {
  for (auto& each : claims_)
    if (each.ends_at) each.ends_at = std::max(*each.ends_at, now + kTimeToAnswer);
}

}  // namespace lockstep::launch
