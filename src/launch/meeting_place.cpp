#include "launch/meeting_place.h"

#include <poll.h>
#include <unistd.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "launch/signal_scope.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using rendezvous::FrameLink;
using rendezvous::TcpEndpoint;
using std::chrono::steady_clock;

constexpr auto kPatienceWithPorts = 10s;  // until who has the port must have let it go
constexpr auto kSaysThatItWaits = 5s;
constexpr auto kOwnAnswer = 10s;
constexpr int kSignalled = 128;

class Search {
 public:
  Search(const RendezvousOptions& options, const JoinRequest& request, int max_restarts,
         const std::string& key, Deadline deadline, RankObserver& lifeline)
      : lifeline_(lifeline),
        options_(options),
        request_(request),
        max_restarts_(max_restarts),
        key_(key),
        deadline_(deadline),
        endpoint_{options.host, options.port} {}

  Seat run() {
    if (must_host()) {
      auto bound = listen_by(endpoint_, std::min(deadline_, begin_ + kPatienceWithPorts));
      heed_signals();
      return host(std::move(bound));
    }
    for (auto pause = 20ms;; pause = std::min(2 * pause, std::chrono::milliseconds(200ms))) {
      if (may_host()) {
        auto bound = rendezvous::try_listen(endpoint_);
        if (bound) return host(std::move(*bound));
      }
      if (auto link = call()) return {nullptr, std::move(*link)};
      if (steady_clock::now() + pause >= deadline_) give_up();
      say_that_it_waits();
      wait(pause);
    }
  }

 private:
  bool must_host() const { return options_.is_host.value_or(options_.is_static && request_.node_rank == 0); }
  bool may_host() const { return !options_.is_static && options_.is_host.value_or(true); }

  Seat host(rendezvous::BoundSocket bound) {
    auto own = std::make_unique<RendezvousHost>(std::move(bound), options_, request_, max_restarts_, key_);
    auto link = FrameLink::connect(endpoint_, key_, steady_clock::now() + kOwnAnswer);
    if (!link)
      throw CommError("launch", {.what = "the rendezvous at " + endpoint_.text() +
                                         " cannot be reached from its own machine",
                                 .got = link.error().text});
    return {std::move(own), std::move(*link)};
  }

  std::optional<FrameLink> call() {
    const auto until = std::min(deadline_, steady_clock::now() + options_.read_timeout);
    auto link = FrameLink::connect(endpoint_, key_, until);
    if (link) return std::move(*link);
    why_not_ = link.error().text;
    if (!link.error().is_final) return std::nullopt;
    throw ConfigError("launch", {.what = "the rendezvous at " + endpoint_.text() + " cannot be joined",
                                 .got = why_not_,
                                 .hint = "give each job a port of its own, and all nodes of a job the same "
                                         "--rdzv-id and LOCKSTEP_JOB_TOKEN"});
  }

  // There are no ranks yet that would have to be told of a signal.
  void wait(std::chrono::milliseconds pause) {
    std::vector<pollfd> watched{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    lifeline_.add_to(watched);
    ::poll(watched.data(), watched.size(), static_cast<int>(pause.count()));
    lifeline_.look();
    heed_signals();
  }

  void heed_signals() {
    while (const auto request = signals_.next())
      if (request->is_stop()) ::_exit(kSignalled + request->signal);
  }

  void say_that_it_waits() {
    if (has_said_ || steady_clock::now() < begin_ + kSaysThatItWaits) return;
    has_said_ = true;
    log_warning("waiting for the host of the rendezvous at " + endpoint_.text() + ": " + why_not_);
  }

  [[noreturn]] void give_up() const {
    throw Timeout("launch", {.what = "nobody hosts the rendezvous at " + endpoint_.text(),
                             .got = why_not_,
                             .hint = options_.is_static ? "start node 0, whose address this must be"
                                                        : "start the node whose address this is"});
  }

  SignalScope signals_;
  RankObserver& lifeline_;
  const RendezvousOptions& options_;
  const JoinRequest& request_;
  int max_restarts_;
  const std::string& key_;
  Deadline deadline_;
  TcpEndpoint endpoint_;
  Deadline begin_ = steady_clock::now();
  std::string why_not_;
  bool has_said_ = false;
};

}  // namespace

Seat take_seat(const RendezvousOptions& options, const JoinRequest& request, int max_restarts,
               const std::string& key, Deadline deadline, RankObserver& lifeline) {
  return Search(options, request, max_restarts, key, deadline, lifeline).run();
}

}  // namespace lockstep::launch

lockstep::Expected<std::pair<std::string, int>> lockstep::parse_rendezvous_endpoint(const std::string& text,
                                                                                    int default_port) {
  auto endpoint = rendezvous::parse_endpoint(text, default_port);
  if (!endpoint) return Unexpected{endpoint.error()};
  return std::pair(std::move(endpoint->host), endpoint->port);
}
