#include "base/sockets.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/format.h"
#include "base/system.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

constexpr auto kHeadStart = milliseconds(250);  // then the next address is tried as well

// The connection attempts to the addresses of a host that are in progress.
class Attempts {
 public:
  Attempts(const addrinfo* addresses, Deadline deadline) : next_(addresses), deadline_(deadline) {}

  Expected<UniqueFd> first_to_succeed() {
    for (;;) {
      if (next_ != nullptr && (begun_.empty() || steady_clock::now() >= next_at_)) begin();
      if (connected_) return std::move(connected_);
      if (begun_.empty() && next_ == nullptr) return Unexpected{failure_};
      if (begun_.empty()) continue;
      look();
      if (connected_) return std::move(connected_);
      if (steady_clock::now() >= deadline_ && !begun_.empty())
        return Unexpected{detail::system_error_text(ETIMEDOUT)};
    }
  }

 private:
  void begin() {
    const auto& address = *std::exchange(next_, next_->ai_next);
    next_at_ = steady_clock::now() + kHeadStart;
    UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0)
      connected_ = std::move(fd);
    else if (fd && errno == EINPROGRESS)
      begun_.push_back(std::move(fd));
    else
      failure_ = detail::system_error_text(errno);
  }

  void look() {
    std::vector<pollfd> watched;
    for (const auto& fd : begun_) watched.push_back({.fd = fd.get(), .events = POLLOUT, .revents = 0});
    const auto until = next_ != nullptr ? std::min(next_at_, deadline_) : deadline_;
    ::poll(watched.data(), watched.size(), milliseconds_until(until));
    for (std::size_t i = watched.size(); i-- > 0;)
      if (watched[i].revents != 0) take(i);
  }

  void take(std::size_t index) {
    UniqueFd fd = std::move(begun_[index]);
    begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(index));
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0)
      connected_ = std::move(fd);
    else
      failure_ = detail::system_error_text(error);
  }

  const addrinfo* next_;
  Deadline deadline_;
  Deadline next_at_{};
  std::vector<UniqueFd> begun_;
  UniqueFd connected_;
  std::string failure_ = "no address";
};

}  // namespace

std::string without_brackets(const std::string& host) {
  const bool has_both = host.starts_with('[') && host.ends_with(']');
  return has_both ? host.substr(1, host.size() - 2) : host;
}

std::string loopback_address() {
  // bind() succeeds on an interface that was never up, but connect() finds no route. A datagram socket sends
  // nothing when it connects.
  const auto is_here = [](const std::string& address) {
    constexpr int kAnyPort = 9;
    const auto found = resolve(address, kAnyPort, AI_NUMERICHOST);
    if (!found) return false;
    const UniqueFd fd(::socket((*found)->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return fd && ::connect(fd.get(), (*found)->ai_addr, (*found)->ai_addrlen) == 0;
  };
  for (const auto* address : {"127.0.0.1", "::1"})
    if (is_here(address)) return address;
  throw Error("base", {.what = "this machine cannot reach itself",
                       .expected = "a loopback interface with the address 127.0.0.1 or ::1 that is up",
                       .got = "no route to either",
                       .hint = "look at `ip address`: lo may be down (`ip link set lo up`)"});
}

Expected<AddressList> resolve(const std::string& host, int port, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (status != 0) return Unexpected{std::string(::gai_strerror(status))};
  return AddressList(found, &::freeaddrinfo);
}

bool await_ready(int fd, short events, Deadline deadline) {
  pollfd wanted{.fd = fd, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Expected<UniqueFd> connect_to(const std::string& host, int port, Deadline deadline) {
  const auto addresses = resolve(host, port);
  if (!addresses) return Unexpected{"cannot resolve the host name: " + addresses.error()};
  return connect_to(addresses->get(), deadline);
}

Expected<UniqueFd> connect_to(const addrinfo* addresses, Deadline deadline) {
  return Attempts(addresses, deadline).first_to_succeed();
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return address.ss_family == AF_INET ? ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port) : 0;
}

namespace {

// Ports below this range belong to more well-known services; above it follow the rendezvous ports of
// launchers, 29400 and 29500, and those that Kubernetes assigns to services without listening on them.
constexpr PortRange kQuiet{20'000, 29'400};
constexpr int kPastTheLast = 65'536;
constexpr int kLeastRoom = 1'000;
constexpr int kAttempts = 100;

// The range from which the system gives ports to outgoing connections.
PortRange of_connections() {
  PortRange range{};
  int last = -1;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> range.first >> last;
  range.end = last + 1;
  return range;
}

// `port` if it is free, or any free port where `port` is 0; 0 otherwise. The machine may lack IPv6.
int bound(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int both = 0;  // overrides net.ipv6.bindv6only
  if (fd) (void)::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
  if (fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&any6), sizeof any6) == 0) return port_of(fd.get());
  if (fd && errno == EADDRINUSE) return 0;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<std::uint16_t>(port));
  fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool is_bound = fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0;
  return is_bound ? port_of(fd.get()) : 0;
}

// A free port of the range; 0 where there is none.
int free_port_in(PortRange range) {
  if (range.end - range.first < kLeastRoom) return 0;
  std::random_device random;
  std::uniform_int_distribution port(range.first, range.end - 1);
  for (int i = 0; i < kAttempts; ++i)
    if (const int free = bound(port(random)); free != 0) return free;
  return 0;
}

}  // namespace

PortRange ports_besides(PortRange connections) {
  const PortRange below{kQuiet.first, std::min(kQuiet.end, connections.first)};
  return below.end - below.first >= kLeastRoom ? below : PortRange{connections.end, kPastTheLast};
}

int reserved_port() {
  const auto connections = of_connections();
  if (connections.end > 0)
    if (const int port = free_port_in(ports_besides(connections)); port != 0) return port;
  if (const int port = bound(0); port != 0) return port;
  if (errno == EMFILE) throw too_many_open_files("no socket can be opened");
  throw ConfigError("base", {.what = "no port of this machine is free", .hint = "set MASTER_PORT"});
}

}  // namespace lockstep
