#include "rendezvous/mesh_sockets.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <lockstep/base/error.h>

#include "base/sockets.h"

namespace lockstep::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kHelloPatience = milliseconds(500);
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

// Messages are small and awaited; and a machine that vanished is noticed.
void tune(int fd) {
  const int on = 1, idle_s = 5, interval_s = 2, count = 3;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

bool say(int fd, const Hello& hello) {
  return ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

// True when a rank of this job said hello.
bool hear(int fd, const Hello& own, Deadline deadline, Hello& hello) {
  std::size_t got = 0;
  while (got < sizeof hello && await_ready(fd, POLLIN, deadline)) {
    const auto count = ::recv(fd, reinterpret_cast<char*>(&hello) + got, sizeof hello - got, 0);
    if (count <= 0) return false;
    got += static_cast<std::size_t>(count);
  }
  return got == sizeof hello && hello.magic == own.magic && hello.token == own.token &&
         hello.world_size == own.world_size && hello.rank < own.world_size;
}

UniqueFd call(const Endpoint& endpoint, const Hello& own, std::uint32_t rank, Deadline deadline) {
  while (steady_clock::now() < deadline) {
    auto connection = connect_to(endpoint.host, endpoint.port, deadline);
    Hello answer;
    if (connection && say(connection->get(), own) && hear(connection->get(), own, deadline, answer) &&
        answer.rank == rank) {
      return std::move(*connection);
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return {};
}

// The next rank that calls; whoever else calls is turned away.
bool answer_one(const MeshListener& listener, const Hello& own, Deadline deadline,
                std::vector<UniqueFd>& connections) {
  if (!await_ready(listener.fd(), POLLIN, deadline)) return false;
  UniqueFd fd(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  Hello hello;
  const auto patience = std::min(deadline, steady_clock::now() + kHelloPatience);
  if (fd && hear(fd.get(), own, patience, hello) && hello.rank > own.rank && say(fd.get(), own)) {
    connections[hello.rank] = std::move(fd);
  }
  return true;
}

std::string missing_ranks(const std::vector<UniqueFd>& connections, const Hello& own) {
  std::string text;
  for (std::size_t rank = 0; rank < connections.size(); ++rank) {
    if (rank != own.rank && !connections[rank]) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return text;
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

std::vector<UniqueFd> connect_mesh(const MeshListener& listener, const Hello& own,
                                   std::span<const Endpoint> endpoints, Deadline deadline) {
  std::vector<UniqueFd> connections(endpoints.size());
  const auto is_missing = [&] { return !missing_ranks(connections, own).empty(); };
  // A called rank answers when it has called all below itself: rank 0 is the first to answer.
  for (std::uint32_t rank = 0; rank < own.rank; ++rank) {
    connections[rank] = call(endpoints[rank], own, rank, deadline);
  }
  while (is_missing() && answer_one(listener, own, deadline, connections)) {
  }
  if (is_missing()) {
    throw Timeout("rendezvous", {.what = "ranks could not be connected in time",
                                 .got = "no connection with rank " + missing_ranks(connections, own),
                                 .where = "rank " + std::to_string(own.rank),
                                 .hint = "ranks call each other on free ports: check the firewall"});
  }
  for (const auto& connection : connections) {
    if (connection) tune(connection.get());
  }
  return connections;
}

}  // namespace lockstep::rendezvous
