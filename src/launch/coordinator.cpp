#include "launch/coordinator.h"

#include <algorithm>
#include <tuple>

#include "launch/posix.h"
#include "launch/rank_observer.h"

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

namespace {

using namespace std::chrono_literals;

// The time in which a better cause than a secondary failure may be reported; nodes have already waited for
// one themselves.
constexpr auto kNodeEchoPatience = 100ms;
constexpr auto kFirstNews = 5s;
constexpr auto kBetweenNews = 60s;

}  // namespace

Coordinator::Coordinator(RendezvousOptions options, JoinRequest host, int max_restarts, Tell tell)
    : options_(std::move(options)),
      host_(std::move(host)),
      max_restarts_(max_restarts),
      tell_(std::move(tell)) {}

void Coordinator::on_message(Node node, const NodeMessage& message, const std::string& address, Time now) {
  const auto found = members_.find(node);
  if (found != members_.end()) found->second.heard_at = now;
  if (message.kind == NodeMessage::kJoin) return on_join(node, message.join, address, now);
  if (found == members_.end()) {
    if (claims_.contains(node)) tell_(node, {.kind = HostMessage::kAlive});
    return;
  }
  switch (message.kind) {
    case NodeMessage::kHere:
      return refuse_claims(node);
    case NodeMessage::kFailed:
      return on_failed(node, message.failure, now);
    case NodeMessage::kLeave:
      return on_leave(node, message.signal, now);
    case NodeMessage::kDone:
      if (found->second.state == State::kRunning) found->second.state = State::kDone;
      return end_if_done();
    default:
      tell_(node, {.kind = HostMessage::kAlive});
  }
}

std::string Coordinator::refusal_of(const JoinRequest& request) const {
  const auto differs = [](const std::string& what, const auto& theirs, const auto& ours) {
    return what + " is " + theirs + " there and " + ours + " at the host of the rendezvous";
  };
  const auto nodes = [](const JoinRequest& each) {
    return std::to_string(each.min_nodes) + ":" + std::to_string(each.max_nodes);
  };
  if (request.run_id != host_.run_id) return differs("--rdzv-id", request.run_id, host_.run_id);
  if (nodes(request) != nodes(host_)) return differs("--nnodes", nodes(request), nodes(host_));
  return {};
}

std::optional<Coordinator::Node> Coordinator::holder_of_number(Node node, const JoinRequest& request) const {
  for (const auto& [other, member] : members_)
    if (other != node && request.node_rank >= 0 && member.request.node_rank == request.node_rank)
      return other;
  return std::nullopt;
}

void Coordinator::on_join(Node node, const JoinRequest& request, const std::string& address, Time now) {
  if (end_) return tell_(node, *end_);
  if (const auto refusal = refusal_of(request); !refusal.empty())
    return tell_(node, {.kind = HostMessage::kRefused, .text = refusal});
  if (const auto holder = holder_of_number(node, request))
    return claim({.newcomer = node, .holder = *holder, .request = request, .address = address}, now);
  admit(node, request, address, now);
}

void Coordinator::claim(const NodeClaims::Claim& claim, Time now) {
  const auto& holder = members_.at(claim.holder);
  claims_.add(claim, holder.request, now);
  if (holder.request.hosts) return refuse_claims(claim.holder);  // this process
  tell_(claim.holder, {.kind = HostMessage::kAsk});
}

// The node that has the number is still there.
void Coordinator::refuse_claims(Node holder) {
  for (const auto& claim : claims_.take(holder)) {
    const auto who = Member{.request = claim.request, .address = claim.address};
    tell_(claim.newcomer,
          {.kind = HostMessage::kRefused,
           .text = "--node-rank " + std::to_string(claim.request.node_rank) + " is taken by " +
                   name_of(members_.at(holder)) + ", which is there, and asked for by " + name_of(who)});
  }
}

// The node that had the number is gone.
void Coordinator::settle_claims(Node holder, Time now) {
  for (const auto& claim : claims_.take(holder)) on_join(claim.newcomer, claim.request, claim.address, now);
}

void Coordinator::admit(Node node, const JoinRequest& request, const std::string& address, Time now) {
  if (!is_running() && !gathering_since_) begin_gathering(now);
  const auto [found, is_new] = members_.try_emplace(node);
  auto& member = found->second;
  stopped(member, now);
  member.request = request;
  member.address = request.address.empty() ? address : request.address;
  member.state = State::kJoined;
  member.heard_at = now;
  if (is_new) member.arrival = num_arrivals_++;
  num_rounds_ = std::max(num_rounds_, request.num_rounds);
  num_restarts_ = std::max(num_restarts_, request.num_restarts);
  const auto num_running = members_.size() - count(State::kJoined);
  if (is_running() && num_running < static_cast<std::size_t>(options_.max_nodes))
    restart_after(name_of(member) + " has come", std::nullopt, now);
  form_if_due(now);
}

void Coordinator::on_failed(Node node, const NodeFailure& failure, Time now) {
  auto& member = members_.at(node);
  if (!is_running() || member.state != State::kRunning) return;
  member.state = State::kFailed;
  if (suspect_ && suspect_->failure.blame >= failure.blame) return;
  suspect_ = Suspect{node, failure, member.request.host};
  const auto at = failure.blame < Blame::kOwnError ? now + kNodeEchoPatience : now;
  decide_at_ = std::min(at, decide_at_.value_or(at));
  if (*decide_at_ <= now) decide(now);
}

void Coordinator::decide(Time now) {
  decide_at_.reset();
  const auto suspect = *std::exchange(suspect_, std::nullopt);
  const auto cause = suspect.failure.cause + ", on host " + suspect.host;
  if (num_restarts_ >= max_restarts_) return end(suspect.failure.exit_code, cause, suspect.node);
  ++num_restarts_;
  const auto count = std::to_string(num_restarts_) + " of " + std::to_string(max_restarts_);
  restart_after(cause + "; all ranks are started anew: restart " + count, suspect.node, now);
}

void Coordinator::restart_after(const std::string& why, std::optional<Node> root_cause, Time now) {
  is_running_ = false;
  suspect_.reset();
  decide_at_.reset();
  begin_gathering(now);
  for (auto& [node, member] : members_) {
    if (member.state == State::kJoined) continue;
    member.state = State::kStopping;
    tell_(node, {.kind = HostMessage::kStop, .text = why, .is_own = node == root_cause});
  }
}

void Coordinator::begin_gathering(Time now) {
  gathering_since_ = now;
  news_at_ = now + kFirstNews;
}

// The time that nodes take to stop their ranks does not count as time to join.
void Coordinator::stopped(const Member& member, Time now) {
  if (member.state == State::kStopping && gathering_since_) gathering_since_ = now;
}

void Coordinator::on_leave(Node node, int signal, Time now) {
  const auto member = members_.extract(node).mapped();
  stopped(member, now);
  if (end_ || member.state == State::kDone || (is_running() && member.state == State::kJoined))
    return end_if_done();
  const auto why = name_of(member) + " was stopped by " + signal_name(signal);
  const bool can_go_on = !options_.is_static && !member.request.hosts &&
                         members_.size() >= static_cast<std::size_t>(options_.min_nodes);
  if (!can_go_on) return end(kExitSignalled + signal, why);
  if (is_running()) restart_after(why + "; the other nodes go on without it", std::nullopt, now);
  form_if_due(now);
  settle_claims(node, now);
}

void Coordinator::on_closed(Node node, Time now) {
  claims_.forget(node);
  if (!members_.contains(node)) return;
  on_lost(node, now);
  settle_claims(node, now);
}

// The loss of a node that is done, or that waits for a place, does not affect the round.
void Coordinator::on_lost(Node node, Time now) {
  const auto member = members_.extract(node).mapped();
  stopped(member, now);
  if (end_ || member.state == State::kDone || (is_running() && member.state == State::kJoined))
    return end_if_done();
  const auto why = name_of(member) + " is lost";
  lost_.push_back(name_of(member));
  enough_since_.reset();
  if (options_.is_static && is_running() && num_restarts_ >= max_restarts_) return end(kExitFailed, why);
  if (is_running()) restart_after(why + "; all ranks are started anew", std::nullopt, now);
  form_if_due(now);
}

void Coordinator::end_if_done() {
  if (end_ || !is_running()) return;
  if (count(State::kDone) + count(State::kJoined) == members_.size()) end(0, "");
}

void Coordinator::end(int exit_code, const std::string& text, std::optional<Node> root_cause) {
  is_running_ = false;
  gathering_since_.reset();
  decide_at_.reset();
  end_ = HostMessage{.kind = HostMessage::kEnd, .text = text, .exit_code = exit_code};
  for (const auto& [node, member] : members_) {
    auto message = *end_;
    message.is_own = node == root_cause;
    tell_(node, message);
  }
}

// None while nodes stop their ranks, for which other deadlines hold.
std::optional<Coordinator::Time> Coordinator::joins_by() const {
  if (!gathering_since_ || count(State::kStopping) > 0) return std::nullopt;
  return *gathering_since_ + options_.join_timeout;
}

std::optional<Coordinator::Time> Coordinator::forms_at() const {
  const auto joined = count(State::kJoined);
  if (joined >= static_cast<std::size_t>(options_.max_nodes)) return Time::min();
  if (joined < static_cast<std::size_t>(options_.min_nodes) || joined < members_.size()) return std::nullopt;
  if (num_rounds_ == 0)
    return *enough_since_ + options_.first_call_timeout.value_or(options_.last_call_timeout);
  return lost_.empty() ? Time::min() : *enough_since_ + options_.last_call_timeout;
}

void Coordinator::form_if_due(Time now) {
  if (is_running() || end_) return;
  const bool is_enough = count(State::kJoined) >= static_cast<std::size_t>(options_.min_nodes);
  if (!is_enough) enough_since_.reset();
  if (is_enough && !enough_since_) enough_since_ = now;
  if (const auto at = forms_at(); at && *at <= now) form();
}

std::vector<Coordinator::Node> Coordinator::in_order() const {
  std::vector<Node> order;
  for (const auto& [node, member] : members_)
    if (member.state == State::kJoined) order.push_back(node);
  const auto place = [&](Node node) {
    const auto& member = members_.at(node);
    const auto& request = member.request;
    const int fixed = request.node_rank >= 0 ? request.node_rank : member.node_rank.value_or(1 << 30);
    return std::tuple(fixed, !request.hosts, request.host, member.arrival);
  };
  std::ranges::sort(order, {}, place);
  order.resize(std::min(order.size(), static_cast<std::size_t>(options_.max_nodes)));
  return order;
}

int Coordinator::num_ranks(const std::vector<Node>& nodes) const {
  int count = 0;
  for (const auto node : nodes) count += members_.at(node).request.nprocs;
  return count;
}

void Coordinator::form() {
  const auto order = in_order();
  const auto& first = members_.at(order.front());
  Round round{.number = num_rounds_++,
              .restarts = num_restarts_,
              .num_nodes = static_cast<int>(order.size()),
              .world_size = num_ranks(order),
              .main_address = first.address.empty() ? options_.host : first.address,
              .main_port = first.request.port};
  std::map<std::string, int> ranks_of_role, ranks_before;
  for (const auto node : order) {
    const auto& request = members_.at(node).request;
    ranks_of_role[request.role] += request.nprocs;
  }
  for (const auto node : order) {
    auto& member = members_.at(node);
    member.state = State::kRunning;
    member.node_rank = round.node_rank;
    round.role_world_size = ranks_of_role[member.request.role];
    round.first_role_rank = ranks_before[member.request.role];
    ranks_before[member.request.role] += member.request.nprocs;
    tell_(node, {.kind = HostMessage::kRound, .round = round});
    ++round.node_rank;
    round.first_rank += member.request.nprocs;
  }
  is_running_ = true;
  gathering_since_.reset();
  news_at_.reset();
  enough_since_.reset();
  lost_.clear();
}

std::optional<Coordinator::Time> Coordinator::next_deadline() const {
  if (end_) return std::nullopt;
  std::optional<Time> next = decide_at_;
  const auto sooner = [&](std::optional<Time> one) {
    if (one) next = std::min(*one, next.value_or(*one));
  };
  if (gathering_since_) {
    sooner(joins_by());
    sooner(forms_at());
    sooner(news_at_);
  }
  sooner(claims_.next_deadline());
  for (const auto& [node, member] : members_)
    if (!member.request.hosts)
      sooner(member.heard_at + options_.keep_alive_interval * options_.keep_alive_max_attempt);
  return next;
}

void Coordinator::on_time(Time now) {
  if (decide_at_ && *decide_at_ <= now) decide(now);
  form_if_due(now);
  tell_news(now);
  const auto joined_by = joins_by();
  if (!joined_by || end_ || now < *joined_by) return;
  if (count(State::kJoined) >= static_cast<std::size_t>(options_.min_nodes)) return form();
  end(kExitFailed, absent_text());
}

void Coordinator::excuse_silence(Time now) {
  for (auto& [node, member] : members_) member.heard_at = now;
  claims_.excuse_silence(now);
}

std::vector<Coordinator::Node> Coordinator::silent_nodes(Time now) const {
  auto silent = claims_.silent_holders(now);
  for (const auto& [node, member] : members_) {
    const auto silent_at = member.heard_at + options_.keep_alive_interval * options_.keep_alive_max_attempt;
    if (!member.request.hosts && silent_at <= now) silent.push_back(node);
  }
  return silent;
}

std::size_t Coordinator::count(State state) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(members_, [&](const auto& each) { return each.second.state == state; }));
}

void Coordinator::tell_news(Time now) {
  if (!news_at_ || end_ || now < *news_at_) return;
  news_at_ = now + kBetweenNews;
  for (const auto& [node, member] : members_)
    if (member.state == State::kJoined) tell_(node, {.kind = HostMessage::kNews, .text = waiting_text()});
}

}  // namespace lockstep::launch
