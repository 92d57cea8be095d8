#include "rendezvous/mesh_listener.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <lockstep/base/error.h>

#include "base/sockets.h"

namespace lockstep::rendezvous {
namespace {

constexpr int kDiscardPort = 9;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

[[noreturn]] void fail(const std::string& what, const std::string& reason) {
  throw CommError("rendezvous", {.what = what, .got = reason});
}

// A datagram socket that is connected sends nothing, but the system has chosen its own address.
Address address_towards(const std::string& host) {
  const auto candidates = resolve(host, kDiscardPort);
  if (!candidates) fail("cannot resolve " + host, candidates.error());
  for (const addrinfo* there = candidates->get(); there != nullptr; there = there->ai_next) {
    const UniqueFd probe(::socket(there->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || ::connect(probe.get(), there->ai_addr, there->ai_addrlen) != 0) continue;
    Address own;
    own.length = sizeof own.storage;
    if (::getsockname(probe.get(), own.get(), &own.length) == 0) return own;
  }
  fail("no interface leads to " + host, std::strerror(errno));
}

Address address_of_interface(const std::string& name) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) fail("cannot list network interfaces", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(found, &::freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || name != each->ifa_name) continue;
    const auto family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address own;
    own.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&own.storage, each->ifa_addr, own.length);
    return own;
  }
  fail("network interface " + name + " has no address", "GLOO_SOCKET_IFNAME=" + name);
}

void set_port(Address& address, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = number;
  }
}

Endpoint endpoint_of(int fd) {
  Address own;
  own.length = sizeof own.storage;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(fd, own.get(), &own.length) != 0 ||
      ::getnameinfo(own.get(), own.length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    fail("cannot read the address of a socket", std::strerror(errno));
  }
  return {host.data(), std::stoi(port.data())};
}

}  // namespace

MeshListener::MeshListener(const std::string& main_address, const std::string& interface) {
  auto address = interface.empty() ? address_towards(main_address) : address_of_interface(interface);
  set_port(address, 0);
  socket_ = UniqueFd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_ || ::bind(socket_.get(), address.get(), address.length) != 0 ||
      ::listen(socket_.get(), SOMAXCONN) != 0) {
    fail("cannot listen for the other ranks", std::strerror(errno));
  }
  endpoint_ = endpoint_of(socket_.get());
}

}  // namespace lockstep::rendezvous
