// NodeLink: a node's launcher as a client of the rendezvous.
#include "launch/node_rounds.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include "launch/output_relay.h"
#include "launch/supervisor.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kFarewell = 1000ms;
constexpr auto kPatienceWithReaders = 1000ms;

UniqueFd make_timer(std::chrono::milliseconds interval) {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const timespec time{.tv_sec = interval.count() / 1000, .tv_nsec = interval.count() % 1000 * 1'000'000};
  const itimerspec schedule{.it_interval = time, .it_value = time};
  if (!timer || ::timerfd_settime(timer.get(), 0, &schedule, nullptr) != 0)
    throw_errno("cannot make a timer");
  return timer;
}

}  // namespace

NodeLink::NodeLink(rendezvous::FrameLink link, const RendezvousOptions& options, const LauncherEvents& events,
                   bool is_quiet)
    : link_(std::move(link)),
      options_(options),
      events_(events),
      is_quiet_(is_quiet),
      timer_(make_timer(options.keep_alive_interval)) {}

NodeOrder NodeLink::join(const JoinRequest& request) {
  has_failed_ = false;
  own_last_lines_.clear();
  send({.kind = NodeMessage::kJoin, .join = request});
  return await_order();
}

NodeOrder NodeLink::after(bool is_done) {
  if (is_done && orders_.empty() && !has_failed_) send({.kind = NodeMessage::kDone});
  return await_order();
}

// A socket that is closed with unread data may discard what was sent; so the data are read first.
void NodeLink::leave(int signal) {
  send({.kind = NodeMessage::kLeave, .signal = signal});
  link_.finish(Clock::now() + kFarewell);
}

void NodeLink::print_news() {
  Outlet err(STDERR_FILENO);
  err.add(take_news());
  err.flush_within(kPatienceWithReaders);
}

NodeOrder NodeLink::await_order() {
  for (look(); orders_.empty(); look()) {
    print_news();
    std::vector<pollfd> watched;
    add_to(watched);
    events_.wait(std::move(watched), -1);
    while (const auto request = events_.signals().next()) {
      if (!request->is_stop()) continue;
      leave(request->signal);
      return {.kind = NodeOrder::kExit, .exit_code = kExitSignalled + request->signal};
    }
  }
  print_news();
  const auto order = orders_.front();
  orders_.pop_front();
  return order;
}

void NodeLink::send(const NodeMessage& message) {
  if (is_over_) return;
  const auto sent = link_.send(kNodeLetter + to_text(message), Clock::now() + options_.read_timeout);
  if (!sent) lose_host(sent.error());
}

void NodeLink::add_to(std::vector<pollfd>& watched) const {
  if (is_over_) return;
  watched.push_back({.fd = link_.fd(), .events = POLLIN, .revents = 0});
  watched.push_back({.fd = timer_.get(), .events = POLLIN, .revents = 0});
}

void NodeLink::look() {
  std::uint64_t ticks = 0;
  // If this process was stopped for a while, the silence is not the fault of the host.
  if (Clock::now() > looked_at_ + 2 * options_.keep_alive_interval) heard_at_ = Clock::now();
  looked_at_ = Clock::now();
  if (::read(timer_.get(), &ticks, sizeof ticks) > 0) send({.kind = NodeMessage::kAlive});
  while (!is_over_) {
    const auto text = link_.receive(Clock::now());
    if (!text) return lose_host(text.error());
    if (!*text) break;
    heard_at_ = Clock::now();
    const auto message = parse_host_message(**text);
    if (!message) return lose_host("it says what nobody understands: " + message.error());
    take(*message);
  }
  const auto patience = options_.keep_alive_interval * (options_.keep_alive_max_attempt + 1);
  if (Clock::now() > heard_at_ + patience) lose_host("it has been silent for too long");
}

void NodeLink::take(const HostMessage& message) {
  announce(message);
  switch (message.kind) {
    case HostMessage::kRound:
      return note({.kind = NodeOrder::kRun, .round = message.round});
    case HostMessage::kStop:
      return note({.kind = NodeOrder::kJoin});
    case HostMessage::kEnd:
      return note({.kind = NodeOrder::kExit, .exit_code = message.exit_code});
    case HostMessage::kAsk:
      return send({.kind = NodeMessage::kHere});
    case HostMessage::kRefused:
      throw ConfigError("launch", {.what = "this node cannot join the rendezvous", .got = message.text});
    default:
      return;
  }
}

void NodeLink::note(NodeOrder order) {
  is_over_ = order.kind == NodeOrder::kExit || order.kind == NodeOrder::kOrphan;
  orders_.push_back(std::move(order));
}

void NodeLink::announce(const HostMessage& message) {
  if (message.text.empty() || message.kind == HostMessage::kRefused) return;
  if (!is_quiet_) news_ += "lockstep: " + message.text + "\n";
  if (message.is_own && !own_last_lines_.empty())
    news_ += "lockstep: its last lines on stderr were\n" + own_last_lines_;
}

void NodeLink::lose_host(const std::string& why) {
  if (is_over_) return;
  note({.kind = NodeOrder::kOrphan, .exit_code = 1});
  news_ += "lockstep: the host of the rendezvous at " +
           rendezvous::TcpEndpoint{options_.host, options_.port}.text() + " is lost: " + why + "\n";
}

void NodeLink::on_failure(const Failure& failure, Blame blame, int exit_code, const std::string& words) {
  has_failed_ = true;
  own_last_lines_ = words;
  send({.kind = NodeMessage::kFailed,
        .failure = {.cause = failure.cause, .blame = blame, .exit_code = exit_code}});
}

}  // namespace lockstep::launch
