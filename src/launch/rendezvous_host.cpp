#include "launch/rendezvous_host.h"

namespace lockstep::launch {

using rendezvous::ServerConnection;
using std::chrono::steady_clock;

namespace {
constexpr std::chrono::seconds kOwnPause{1};  // beyond what a busy machine is late: this process was stopped
}  // namespace

CoordinatorService::CoordinatorService(const RendezvousOptions& options, const JoinRequest& own,
                                       int max_restarts)
    : coordinator_(options, own, max_restarts, [this](Coordinator::Node node, const HostMessage& message) {
        nodes_.at(node)->send(to_text(message));
      }) {}

void CoordinatorService::on_message(ServerConnection& from, std::string_view payload) {
  const auto message = parse_node_message(payload);
  if (!message) return from.give_up();
  nodes_[from.id()] = &from;
  coordinator_.on_message(from.id(), *message, from.is_local() ? "" : from.peer_address(),
                          steady_clock::now());
  note_departure();
}

void CoordinatorService::on_closed(const ServerConnection& connection) {
  if (nodes_.erase(connection.id()) == 0) return;  // a rank
  coordinator_.on_closed(connection.id(), steady_clock::now());
  note_departure();
}

std::optional<Deadline> CoordinatorService::next_deadline() const { return coordinator_.next_deadline(); }

void CoordinatorService::on_time() {
  const auto now = steady_clock::now();
  const auto due = coordinator_.next_deadline();
  if (due && now > *due + kOwnPause) coordinator_.excuse_silence(now);
  for (const auto node : coordinator_.silent_nodes(now)) nodes_.at(node)->give_up();
  coordinator_.on_time(now);
}

void CoordinatorService::note_departure() {
  const std::lock_guard lock(mutex_);
  is_empty_ = !coordinator_.has_members();
  departure_.notify_all();
}

void CoordinatorService::await_departure(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  departure_.wait_for(lock, patience, [&] { return is_empty_; });
}

RendezvousHost::RendezvousHost(rendezvous::BoundSocket socket, const RendezvousOptions& options,
                               const JoinRequest& own, int max_restarts, const std::string& key)
    : coordinator_(options, own, max_restarts),
      server_(std::move(socket), key, {{kNodeLetter, &coordinator_}}) {}

}  // namespace lockstep::launch
