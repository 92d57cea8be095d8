#include "rendezvous/addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "base/host_name.h"
#include "base/sockets.h"
#include "rendezvous/interfaces.h"

namespace lockstep::rendezvous {
namespace {

constexpr int kDiscardPort = 9;

[[noreturn]] void refuse(const std::string& what, const std::string& reason, const std::string& hint = {}) {
  throw CommError("rendezvous", {.what = what, .got = reason, .hint = hint});
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Interfaces own_interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) refuse("cannot list network interfaces", std::strerror(errno));
  return {found, &::freeifaddrs};
}

// The address of an interface; none for other families, and for interfaces that are down.
std::optional<Address> address_in(const ifaddrs& interface) {
  if (interface.ifa_addr == nullptr || (interface.ifa_flags & IFF_UP) == 0) return std::nullopt;
  const auto family = interface.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  Address own;
  own.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&own.storage, interface.ifa_addr, own.length);
  return own;
}

Address address_of(const addrinfo& found) {
  Address address;
  address.length = found.ai_addrlen;
  std::memcpy(&address.storage, found.ai_addr, found.ai_addrlen);
  return address;
}

bool is_for_one_link(const Address& address) {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

// The lower, the better suited to be reached by others.
int rank_of(const Address& address) {
  const int family = address.storage.ss_family == AF_INET ? 0 : 1;
  return family + (address.is_loopback() ? 4 : is_for_one_link(address) ? 2 : 0);
}

template <class Filter>
std::optional<Address> best_address(const Filter& is_meant) {
  const auto interfaces = own_interfaces();
  std::optional<Address> best;
  for (const ifaddrs* each = interfaces.get(); each != nullptr; each = each->ifa_next) {
    const auto address = is_meant(*each) ? address_in(*each) : std::nullopt;
    if (address && (!best || rank_of(*address) < rank_of(*best))) best = address;
  }
  return best;
}

}  // namespace

std::string Address::text() const {
  std::array<char, NI_MAXHOST> host{};
  const int status = ::getnameinfo(get(), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  if (status != 0) refuse("cannot read an address of this machine", ::gai_strerror(status));
  return host.data();
}

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 == 127;
  const auto& address = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

// Connecting a datagram socket sends nothing, but makes the system choose its own address.
Route route_to(const std::string& host) {
  const auto candidates = resolve(host, kDiscardPort);
  if (!candidates) refuse("cannot resolve " + host, candidates.error());
  for (const addrinfo* there = candidates->get(); there != nullptr; there = there->ai_next) {
    const UniqueFd probe(::socket(there->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || ::connect(probe.get(), there->ai_addr, there->ai_addrlen) != 0) continue;
    Route route{.own = {}, .there = address_of(*there)};
    route.own.length = sizeof route.own.storage;
    if (::getsockname(probe.get(), route.own.get(), &route.own.length) == 0) return route;
  }
  refuse("no interface leads to " + host, std::strerror(errno),
         "look at `ip address` and `ip route`: even lo may be down");
}

Address address_of_interface(const std::string& name) {
  const auto address = best_address([&](const ifaddrs& each) { return name == each.ifa_name; });
  if (!address) refuse("network interface " + name + " has no address", "GLOO_SOCKET_IFNAME=" + name);
  return *address;
}

Address address_for_others() {
  const auto address = best_address([](const ifaddrs&) { return true; });
  if (!address) refuse("no network interface has an address", "none", "even lo is down: ip link set lo up");
  return *address;
}

bool is_name_of_loopback(const std::string& host) {
  if (host == "localhost" || resolve(host, kDiscardPort, AI_NUMERICHOST)) return false;
  const auto found = resolve(host, kDiscardPort);
  if (!found) return false;
  for (const addrinfo* each = found->get(); each != nullptr; each = each->ai_next)
    if (!address_of(*each).is_loopback()) return false;
  return true;
}

std::vector<NetworkInterface> network_interfaces() {
  const auto interfaces = own_interfaces();
  std::vector<NetworkInterface> all;
  for (const ifaddrs* each = interfaces.get(); each != nullptr; each = each->ifa_next) {
    auto known = std::ranges::find(all, each->ifa_name, &NetworkInterface::name);
    if (known == all.end()) {
      all.push_back({.name = each->ifa_name,
                     .is_up = (each->ifa_flags & IFF_UP) != 0,
                     .is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0});
      known = all.end() - 1;
    }
    if (const auto address = address_in(*each)) known->addresses.push_back(address->text());
  }
  return all;
}

std::string interface_with(const std::string& text) {
  const auto interfaces = own_interfaces();
  for (const ifaddrs* each = interfaces.get(); each != nullptr; each = each->ifa_next) {
    const auto address = address_in(*each);
    if (address && address->text() == text) return each->ifa_name;
  }
  return {};
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kLastPort = 65'535;
constexpr auto kPause = milliseconds(50);

Expected<int> parse_port(std::string_view text) {
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 0 || port > kLastPort)
    return Unexpected{"a port of 0 to 65535"};
  return port;
}

UniqueFd listening_socket(const addrinfo& address, int port) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ai_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  sockaddr_storage at{};
  std::memcpy(&at, address.ai_addr, address.ai_addrlen);
  auto& number = address.ai_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                               : reinterpret_cast<sockaddr_in&>(at).sin_port;
  number = htons(static_cast<std::uint16_t>(port));
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), address.ai_addrlen) == 0 &&
      ::listen(fd.get(), SOMAXCONN) == 0)
    return fd;
  const int error = errno;  // copied, since close() may change errno
  fd.reset();
  errno = error;
  return fd;
}

bool is_same(const addrinfo& one, const addrinfo& other) {
  return one.ai_addrlen == other.ai_addrlen && std::memcmp(one.ai_addr, other.ai_addr, one.ai_addrlen) == 0;
}

// The addresses without duplicates, since listening on the second of two equal ones would fail.
std::vector<const addrinfo*> different_ones(const AddressList& list) {
  std::vector<const addrinfo*> all;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    const bool is_internet = each->ai_family == AF_INET || each->ai_family == AF_INET6;
    const bool is_known = std::ranges::any_of(all, [&](const auto* known) { return is_same(*known, *each); });
    if (is_internet && !is_known) all.push_back(each);
  }
  return all;
}

// Whether listening failed because the address is not one of this machine, or of a family that the kernel
// lacks.
bool is_others(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

bool is_ipv4(const UniqueFd& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
         address.ss_family == AF_INET;
}

using Listening = Expected<BoundSocket, ListenFailure>;

Listening listen_on(const std::vector<const addrinfo*>& addresses, const TcpEndpoint& endpoint) {
  BoundSocket bound{.fds = {}, .endpoint = endpoint};
  int error = EADDRNOTAVAIL;
  for (const auto* address : addresses) {
    if (auto fd = listening_socket(*address, bound.endpoint.port)) {
      bound.endpoint.port = lockstep::port_of(fd.get());
      bound.fds.push_back(std::move(fd));
    } else if (errno == EADDRINUSE) {
      return Unexpected<ListenFailure>{{EADDRINUSE, detail::system_error_text(EADDRINUSE)}};
    } else if (!is_others(errno)) {
      error = errno;
    }
  }
  if (!bound.fds.empty()) return bound;
  return Unexpected<ListenFailure>{{error, detail::system_error_text(error)}};
}

}  // namespace

std::string TcpEndpoint::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Expected<TcpEndpoint> parse_endpoint(std::string_view text, int default_port) {
  constexpr auto kForm = "HOST[:PORT]";
  std::string_view host = text, rest;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return Unexpected{kForm};
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else if (std::ranges::count(text, ':') == 1) {
    host = text.substr(0, text.find(':'));
    rest = text.substr(host.size());
  }
  if (!may_be_host(host) || (!rest.empty() && !rest.starts_with(':'))) return Unexpected{kForm};
  if (rest.empty()) return TcpEndpoint{std::string(host), default_port};
  const auto port = parse_port(rest.substr(1));
  if (!port) return Unexpected{kForm + std::string(" with ") + port.error()};
  return TcpEndpoint{std::string(host), *port};
}

Expected<BoundSocket, ListenFailure> try_listen(const TcpEndpoint& endpoint) {
  const auto addresses = resolve(endpoint.host, endpoint.port);
  if (!addresses) return Unexpected<ListenFailure>{{0, "cannot resolve the host name: " + addresses.error()}};
  return listen_on(different_ones(*addresses), endpoint);
}

Expected<BoundSocket, ListenFailure> try_listen_everywhere(int port) {
  const auto old = resolve("0.0.0.0", port, AI_NUMERICHOST), current = resolve("::", port, AI_NUMERICHOST);
  std::vector<const addrinfo*> addresses;
  if (old) addresses.push_back(old->get());
  if (current) addresses.push_back(current->get());
  auto bound = listen_on(addresses, {"127.0.0.1", port});
  if (bound && !is_ipv4(bound->fds.front())) bound->endpoint.host = "::1";
  return bound;
}

BoundSocket listen_by(const TcpEndpoint& endpoint, Deadline deadline) {
  for (;;) {
    auto bound = try_listen(endpoint);
    if (bound) return std::move(*bound);
    const auto& failure = bound.error();
    const bool may_change = failure.error == EADDRINUSE || failure.error == 0;
    if (!may_change || steady_clock::now() + kPause >= deadline) throw listen_error(endpoint, failure);
    std::this_thread::sleep_for(kPause);
  }
}

CommError listen_error(const TcpEndpoint& endpoint, const ListenFailure& failure) {
  const auto hint =
      failure.error == EADDRINUSE ? "end the program that uses the port, or choose another one"
      : failure.error == 0
          ? "check the name and /etc/hosts"
          : "it must be an address of this machine, of an interface that is up: even lo may be down";
  return {"rendezvous", {.what = "cannot listen on " + endpoint.text(), .got = failure.text, .hint = hint}};
}

void tune_socket(int fd) {
  const int on = 1, idle_s = 5, interval_s = 2, count = 3;
  const unsigned unacknowledged_ms = 11'000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

}  // namespace lockstep::rendezvous
