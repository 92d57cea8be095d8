#include "rendezvous/own_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include <lockstep/base/error.h>

#include "base/sockets.h"

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

std::string interface_with(const std::string& text) {
  const auto interfaces = own_interfaces();
  for (const ifaddrs* each = interfaces.get(); each != nullptr; each = each->ifa_next) {
    const auto address = address_in(*each);
    if (address && address->text() == text) return each->ifa_name;
  }
  return {};
}

}  // namespace lockstep::rendezvous
