#include "launch/remote_host.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>

#include <lockstep/base/log.h>
#include <net/if.h>

#include "base/sockets.h"
#include "launch/posix.h"

namespace lockstep::launch {
namespace {

constexpr int kNoConnection = 255;  // the exit code of ssh for this

}  // namespace

RemoteHost::RemoteHost(std::string name, RankProcess shell, UniqueFd to_stdin, const std::string& order)
    : name_(std::move(name)),
      shell_(std::move(shell)),
      to_stdin_(std::move(to_stdin)),
      orders_(to_stdin_.get()) {
  orders_.add(order);
}

bool RemoteHost::hear(std::string_view line) {
  const auto message = decode_message(line);
  if (!message) {
    last_line_ = line.substr(0, line.find_first_of("\r\n"));
    return false;
  }
  if (message->is_ready)
    is_ready_ = true;
  else if (!failure_)
    failure_ = *message;
  return true;
}

void RemoteHost::add_to(std::vector<pollfd>& watched) const {
  if (!alive()) return;
  watched.push_back({.fd = shell_.pidfd.get(), .events = POLLIN, .revents = 0});
  if (to_stdin_) orders_.add_to(watched);
}

void RemoteHost::flush() {
  if (to_stdin_) orders_.flush();
}

void RemoteHost::send(std::string_view line) {
  orders_.add(std::string(line) + "\n");
  flush();
}

void RemoteHost::pass_on(int signal) {
  shell_.told_to_stop = true;
  if (is_ready_) return send(std::string(kSignal) + std::to_string(signal));
  to_stdin_.reset();
  send_signal(shell_, signal);
}

void RemoteHost::kill() {
  shell_.told_to_stop = true;
  to_stdin_.reset();
  send_signal(shell_, SIGKILL);
}

void RemoteHost::look() {
  if (!alive()) return;
  int status = 0;
  const pid_t ended = ::waitpid(shell_.pid, &status, WNOHANG);
  if (ended == 0) return;
  shell_.end = WIFSIGNALED(status) ? ProcessEnd{.signal = WTERMSIG(status)}
                                   : ProcessEnd{.exit_code = ended < 0 ? kNoConnection : WEXITSTATUS(status)};
  shell_.pidfd.reset();
  to_stdin_.reset();
}

bool RemoteHost::is_lost() const {
  if (alive() || !is_ready_ || failure_ || shell_.told_to_stop) return false;
  const int code = shell_.end->status();
  return code == kNoConnection || code > kExitSignalled;
}

Blame RemoteHost::blame() const {
  if (failure_) return failure_->blame;
  const bool has_failed = !alive() && (shell_.end->failed() || !is_ready_);
  return has_failed && !shell_.told_to_stop ? Blame::kSilentExit : Blame::kNone;
}

std::string RemoteHost::cause() const {
  const auto who = "host " + name_ + ": ";
  if (failure_) return who + failure_->cause;
  const auto last = last_line_.empty() ? "" : ": " + last_line_;
  if (shell_.end->signal != 0)
    return who + "its remote shell was killed by " + signal_name(shell_.end->signal);
  const auto code = std::to_string(shell_.end->exit_code);
  if (shell_.end->exit_code == 0 && !is_ready_)
    return who + "its remote shell ended without starting lockstep" + last;
  if (shell_.end->exit_code == kExitCannotExecute && !is_ready_) return who + "lockstep is not there" + last;
  if (is_ready_ && shell_.end->exit_code != kNoConnection)
    return who + "lockstep run exited with code " + code + last;
  return who + (is_ready_ ? "the connection was lost" : "cannot be reached") +
         " (the remote shell exited with code " + code + ")" + last;
}

int RemoteHost::exit_code() const {
  if (failure_) return failure_->exit_code;
  const int code = shell_.end->status();
  return code == kNoConnection || code == 0 ? kExitFailed : code;
}

namespace {

using namespace std::chrono_literals;

// Longer than a launcher waits for a root cause among its own ranks.
constexpr auto kHostEchoPatience = 500ms;
// The time for the other hosts to end after the first one has ended well, which it does last.
constexpr auto kLateEnd = 5s;

}  // namespace

RemoteJob::RemoteJob(std::vector<RemoteHost> hosts, OutputRelay& relay, SignalScope& signals,
                     Patience patience, int min_hosts)
    : hosts_(std::move(hosts)),
      relay_(relay),
      signals_(signals),
      patience_(patience),
      min_hosts_(min_hosts),
      start_by_(Clock::now() + patience.start) {
  relay_.set_filter(
      [this](int host, std::string_view line) { return hosts_[static_cast<std::size_t>(host)].hear(line); });
}

RemoteJob::~RemoteJob() {
  for (auto& host : hosts_) {
    host.kill();
    kill_and_reap(host.shell());
  }
  relay_.set_filter({});
}

int RemoteJob::run() {
  while (any_alive()) {
    sleep_until_event();
    look();
    heed_requests();
    start_when_all_are_ready();
    end_with_first_host();
    go_on_without_lost_hosts();
    look_for_root_cause();
    meet_deadlines();
  }
  relay_.look();
  if (interrupted_by_ != 0) return kExitSignalled + interrupted_by_;
  if (never_started_) return kExitFailed;
  return root_cause_ == nullptr ? 0 : root_cause_->exit_code();
}

bool RemoteJob::any_alive() const { return std::ranges::any_of(hosts_, &RemoteHost::alive); }

void RemoteJob::sleep_until_event() const {
  std::vector<pollfd> watched{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  for (const auto& host : hosts_) host.add_to(watched);
  relay_.add_to(watched);
  int timeout_ms = -1;
  for (const auto& deadline : {name_at_, kill_at_, start_by_}) {
    if (!deadline) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    const int left_ms = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
  }
  ::poll(watched.data(), watched.size(), timeout_ms);
}

void RemoteJob::look() {
  relay_.look();
  for (auto& host : hosts_) {
    host.flush();
    host.look();
  }
}

void RemoteJob::heed_requests() {
  while (const auto request = signals_.next()) {
    if (!request->is_stop()) {
      if (start_by_) continue;  // there are no ranks yet, and hosts accept nothing but kGo
      for (auto& host : hosts_)
        if (host.alive() && host.is_ready())
          host.send(std::string(kSignal) + std::to_string(request->signal));
      continue;
    }
    if (interrupted_by_ != 0 && Clock::now() - stopping_since_ > kSameRequest) return kill_all();
    if (interrupted_by_ != 0) continue;
    interrupted_by_ = request->signal;
    root_cause_ = nullptr;
    name_at_.reset();
    relay_.say("lockstep: stopped by " + signal_name(request->signal) + "\n");
    ask_to_stop(request->signal);
  }
}

void RemoteJob::start_when_all_are_ready() {
  if (!start_by_ || stopping_ || !std::ranges::all_of(hosts_, &RemoteHost::is_ready)) return;
  start_by_.reset();
  for (auto& host : hosts_) host.send(kGo);
}

// The launchers of the remaining hosts restart their ranks. The first host, where the rendezvous is, must
// remain. Where a host has reported a failure the job ends, and all hosts end with the same exit code, which
// may be that of a signal.
void RemoteJob::go_on_without_lost_hosts() {
  if (min_hosts_ == 0 || stopping_ || start_by_) return;
  relay_.look();  // reads what hosts have printed before they ended
  if (std::ranges::any_of(hosts_, &RemoteHost::has_told_failure)) return;
  if (!hosts_.front().takes_part() || std::ranges::count_if(hosts_, &RemoteHost::takes_part) < min_hosts_)
    return;
  for (auto& host : hosts_) {
    if (!host.is_lost()) continue;
    relay_.say("lockstep: " + host.cause() + "; the other hosts go on without it\n");
    host.give_up();
  }
}

// The host of the rendezvous learns of the end of the job last. Hosts that are still running have been left
// out of the job, and do not know it.
void RemoteJob::end_with_first_host() {
  const auto& first = hosts_.front();
  if (min_hosts_ == 0 || stopping_ || first.alive() || first.shell().end->failed()) return;
  stopping_ = true;
  kill_at_ = Clock::now() + kLateEnd;
  for (auto& host : hosts_) host.give_up();
}

void RemoteJob::look_for_root_cause() {
  if (stopping_) return;
  for (const auto& host : hosts_) {
    if (host.blame() <= (root_cause_ ? root_cause_->blame() : Blame::kNone)) continue;
    root_cause_ = &host;
    const auto name_at = Clock::now() + (host.blame() < Blame::kOwnError ? kHostEchoPatience : 0ms);
    name_at_ = std::min(name_at, name_at_.value_or(name_at));
  }
}

void RemoteJob::meet_deadlines() {
  const auto now = Clock::now();
  if (name_at_ && (now >= *name_at_ || !any_alive())) name_cause();
  if (start_by_ && now >= *start_by_ && !stopping_) name_absent();
  if (kill_at_ && now >= *kill_at_) kill_all();
}

void RemoteJob::name_cause() {
  relay_.look();  // reads the last lines of a remote shell that has ended
  relay_.say("lockstep: " + root_cause_->cause() + "\n");
  ask_to_stop(SIGTERM);
}

void RemoteJob::name_absent() {
  std::string absent;
  for (const auto& host : hosts_)
    if (!host.is_ready()) absent += (absent.empty() ? "" : ", ") + host.name();
  never_started_ = true;
  relay_.say("lockstep: no answer within " + std::to_string(patience_.start.count() / 1000) +
             " s from: " + absent + "; no rank was started\n");
  ask_to_stop(SIGTERM);
}

void RemoteJob::ask_to_stop(int signal) {
  stopping_ = true;
  stopping_since_ = Clock::now();
  name_at_.reset();
  start_by_.reset();
  kill_at_ = Clock::now() + patience_.grace;
  for (auto& host : hosts_)
    if (host.alive()) host.pass_on(signal);
}

void RemoteJob::kill_all() {
  kill_at_.reset();
  for (auto& host : hosts_)
    if (host.alive()) host.kill();
}

namespace {

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto number = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return (number >> 24) == 127;
}

std::string text_of(const sockaddr& address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

// A link-local IPv6 address is of no use without the name of an interface.
bool is_for_one_link(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

std::string address_of_interface() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  return reachable_address(list);
}

}  // namespace

// As `hostname -I` does.
std::string reachable_address(const ifaddrs* interfaces) {
  for (const int family : {AF_INET, AF_INET6})
    for (const auto* each = interfaces; each != nullptr; each = each->ifa_next) {
      const bool is_up = each->ifa_addr != nullptr && (each->ifa_flags & IFF_UP) != 0;
      if (is_up && each->ifa_addr->sa_family == family && !is_loopback(*each->ifa_addr) &&
          !is_for_one_link(*each->ifa_addr))
        return text_of(*each->ifa_addr);
    }
  return {};
}

std::string address_of_host(const std::string& host) {
  const auto name = host.substr(host.find('@') + 1);
  const auto found = resolve(name, 0);
  if (!found) {
    log_warning("the address of " + name + " is not known here (" + found.error() +
                "); the hosts meet there under this name, or at --master-addr");
    return name;
  }
  const sockaddr* first = nullptr;
  for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next) {
    const bool is_internet = each->ai_family == AF_INET || each->ai_family == AF_INET6;
    if (!is_internet || is_loopback(*each->ai_addr)) continue;
    if (each->ai_family == AF_INET) return text_of(*each->ai_addr);
    if (first == nullptr) first = each->ai_addr;
  }
  if (first != nullptr) return text_of(*first);
  const auto own = address_of_interface();
  return own.empty() ? "127.0.0.1" : own;
}

}  // namespace lockstep::launch
