// join_rendezvous(): the launcher of a node connects to the rendezvous, or hosts it.
#include "launch/node_rounds.h"

#include <unistd.h>

#include <cerrno>
#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/format.h"
#include "rendezvous/addresses.h"

namespace lockstep::launch {

using rendezvous::ServerConnection;
using std::chrono::steady_clock;

namespace {
// A longer delay than on a busy machine means that this process was stopped.
constexpr std::chrono::seconds kOwnPause{1};
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
  if (nodes_.erase(connection.id()) == 0) return;  // the connection of a rank
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

namespace {

using namespace std::chrono_literals;
using rendezvous::FrameLink;
using rendezvous::TcpEndpoint;

constexpr auto kPatienceWithPorts = 10s;  // until another program must have released the port
constexpr auto kSaysThatItWaits = 5s;
constexpr auto kOwnAnswer = 10s;
constexpr auto kAttempt = 3s;  // during which signals are not handled

class Search {
 public:
  Search(const RendezvousOptions& options, const JoinRequest& request, int max_restarts,
         const std::string& key, Deadline deadline, const LauncherEvents& events)
      : events_(events),
        options_(options),
        request_(request),
        max_restarts_(max_restarts),
        key_(key),
        deadline_(deadline),
        endpoint_{options.host, options.port} {}

  RendezvousConnection run() {
    heed_signals();
    for (auto pause = 20ms;; pause = std::min(2 * pause, std::chrono::milliseconds(200ms))) {
      auto seat = must_host() ? try_to_host(pause) : try_to_join(pause);
      if (seat) return std::move(*seat);
      say_that_it_waits();
      wait(pause);
    }
  }

 private:
  bool must_host() const { return options_.is_host.value_or(options_.is_static && request_.node_rank == 0); }
  bool may_host() const { return !options_.is_static && options_.is_host.value_or(true); }

  // Other nodes may resolve the name of this node to another address than the node itself does.
  Expected<rendezvous::BoundSocket, rendezvous::ListenFailure> try_listen() const {
    return rendezvous::is_name_of_loopback(endpoint_.host) ? rendezvous::try_listen_everywhere(endpoint_.port)
                                                           : rendezvous::try_listen(endpoint_);
  }

  std::optional<RendezvousConnection> try_to_host(std::chrono::milliseconds pause) {
    auto bound = try_listen();
    if (bound) return host(std::move(*bound));
    const auto failure = bound.error();
    if (failure.error == EADDRNOTAVAIL && options_.is_host == true) return host_everywhere();
    const auto patience = failure.error == 0            ? deadline_  // a name that is only just being given
                          : failure.error == EADDRINUSE ? std::min(deadline_, begin_ + kPatienceWithPorts)
                                                        : begin_;
    if (steady_clock::now() + pause >= patience) refuse_to_host(failure);
    why_not_ = failure.text;
    return std::nullopt;
  }

  // Nodes that were started without --node-rank all assume that they are node 0.
  [[noreturn]] void refuse_to_host(const rendezvous::ListenFailure& failure) const {
    if (failure.error != EADDRNOTAVAIL || !options_.is_static)
      throw rendezvous::listen_error(endpoint_, failure);
    throw CommError("launch",
                    {.what = "node 0 cannot listen on " + endpoint_.text() + ", where the nodes meet",
                     .expected = "an address of this machine, of an interface that is up",
                     .got = failure.text,
                     .hint = "give each other node its own --node-rank, from 1, or give all nodes "
                             "--rdzv-backend c10d, with which they need none"});
  }

  // The address belongs to a device in front of this machine that forwards connections.
  RendezvousConnection host_everywhere() {
    auto bound = rendezvous::try_listen_everywhere(endpoint_.port);
    if (!bound) throw rendezvous::listen_error(endpoint_, bound.error());
    log_warning(endpoint_.host + " is no address of this machine: the rendezvous listens on all that it has");
    return host(std::move(*bound));
  }

  std::optional<RendezvousConnection> try_to_join(std::chrono::milliseconds pause) {
    if (may_host()) {
      auto bound = try_listen();
      if (bound) return host(std::move(*bound));
      is_port_taken_here_ = bound.error().error == EADDRINUSE;
    }
    if (auto link = call()) return RendezvousConnection{nullptr, std::move(*link), endpoint_};
    if (steady_clock::now() + pause >= deadline_) give_up();
    return std::nullopt;
  }

  RendezvousConnection host(rendezvous::BoundSocket bound) {
    const auto at = bound.endpoint;
    auto own = std::make_unique<RendezvousHost>(std::move(bound), options_, request_, max_restarts_, key_);
    auto link = FrameLink::connect(at, key_, steady_clock::now() + kOwnAnswer);
    if (!link)
      throw CommError("launch",
                      {.what = "the rendezvous at " + at.text() + " cannot be reached from its own machine",
                       .got = link.error().text});
    return {std::move(own), std::move(*link), at};
  }

  std::optional<FrameLink> call() {
    const auto patience = std::min(options_.read_timeout, std::chrono::milliseconds(kAttempt));
    auto link = FrameLink::connect(endpoint_, key_, std::min(deadline_, steady_clock::now() + patience));
    if (link) return std::move(*link);
    why_not_ = link.error().text;
    is_foreign_ = link.error().is_foreign;
    if (!link.error().is_final) return std::nullopt;
    throw ConfigError("launch", {.what = "the rendezvous at " + endpoint_.text() + " cannot be joined",
                                 .got = why_not_,
                                 .hint = is_foreign_ ? hint_about_port()
                                                     : "give each job a port of its own, and all nodes of a "
                                                       "job the same --rdzv-id and LOCKSTEP_JOB_TOKEN"});
  }

  std::string hint_about_port() const {
    return (is_port_taken_here_ ? "end the program that uses the port of this machine"
                                : "end the program that uses the port there") +
           std::string(", or give all nodes another one");
  }

  // There are no ranks yet to which a signal would have to be passed on.
  void wait(std::chrono::milliseconds pause) {
    events_.wait({}, static_cast<int>(pause.count()));
    heed_signals();
  }

  void heed_signals() {
    while (const auto request = events_.signals().next())
      if (request->is_stop()) ::_exit(kExitSignalled + request->signal);
  }

  void say_that_it_waits() {
    if (has_said_ || steady_clock::now() < begin_ + kSaysThatItWaits) return;
    has_said_ = true;
    log_warning(
        (must_host() ? "waiting to host the rendezvous at " : "waiting for the host of the rendezvous at ") +
        endpoint_.text() + ": " + why_not_);
  }

  [[noreturn]] void give_up() const {
    throw Timeout("launch", {.what = "nobody hosts the rendezvous at " + endpoint_.text(),
                             .got = why_not_,
                             .hint = is_foreign_          ? hint_about_port()
                                     : options_.is_static ? "start node 0, whose address this must be"
                                                          : "start the node whose address this is"});
  }

  const LauncherEvents& events_;
  const RendezvousOptions& options_;
  const JoinRequest& request_;
  int max_restarts_;
  const std::string& key_;
  Deadline deadline_;
  TcpEndpoint endpoint_;
  Deadline begin_ = steady_clock::now();
  std::string why_not_;
  bool is_foreign_ = false;
  bool is_port_taken_here_ = false;
  bool has_said_ = false;
};

}  // namespace

RendezvousConnection join_rendezvous(const RendezvousOptions& options, const JoinRequest& request,
                                     int max_restarts, const std::string& key, Deadline deadline,
                                     const LauncherEvents& events) {
  return Search(options, request, max_restarts, key, deadline, events).run();
}

}  // namespace lockstep::launch

lockstep::Expected<std::pair<std::string, int>> lockstep::parse_rendezvous_endpoint(const std::string& text,
                                                                                    int default_port) {
  auto endpoint = rendezvous::parse_endpoint(detail::trimmed(text, " \t\r\n"), default_port);
  if (!endpoint) return Unexpected{endpoint.error()};
  return std::pair(std::move(endpoint->host), endpoint->port);
}
