#include "rendezvous/mesh_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include <lockstep/base/error.h>

#include "rendezvous/addresses.h"
#include "rendezvous/message.h"

namespace lockstep::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An answer is waited for in slices, so that somebody may stop that.
Deadline slice_of(Deadline deadline, milliseconds length) {
  return std::min(deadline, steady_clock::now() + length);
}

constexpr auto kSlice = milliseconds(100);
constexpr auto kConnectAttempt = milliseconds(3000);  // to connect; then the next one begins

// The answer of the called rank; nothing where it came from another program, or did not arrive.
std::optional<Hello> answer_from(int fd, const Hello& own, Deadline deadline, const std::stop_token& stop) {
  Greeting greeting(own);
  while (greeting.state() == Greeting::kUnfinished && steady_clock::now() < deadline &&
         !stop.stop_requested())
    if (await_ready(fd, POLLIN, slice_of(deadline, kSlice))) greeting.read(fd);
  if (greeting.state() != Greeting::kWelcome) return std::nullopt;
  return greeting.hello();
}

UniqueFd call(const Endpoint& endpoint, const Hello& own, std::uint32_t rank, Deadline deadline,
              const std::stop_token& stop) {
  while (steady_clock::now() < deadline && !stop.stop_requested()) {
    auto connection = connect_to(endpoint.host, endpoint.port, slice_of(deadline, kConnectAttempt));
    if (connection && say(connection->get(), own)) {
      const auto answer = answer_from(connection->get(), own, deadline, stop);
      if (answer && answer->rank == rank) return std::move(*connection);
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return {};
}

std::vector<int> missing_from(const std::vector<UniqueFd>& connections, const Hello& own) {
  std::vector<int> missing;
  for (std::uint32_t rank = 0; rank < connections.size(); ++rank) {
    if (rank != own.rank && !connections[rank]) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

[[noreturn]] void report(std::vector<int> missing, const Hello& own, const Endpoint& endpoint) {
  const auto interface = interface_with(endpoint.host);
  throw Timeout(
      "rendezvous",
      {.what = "ranks could not be connected in time",
       .got = "no connection with " + ranks_text(missing),
       .where = "rank " + std::to_string(own.rank),
       .hint = "this rank listens at " + endpoint.host + (interface.empty() ? "" : " (" + interface + ")") +
               ", on a free port: check the firewall, or name another interface in "
               "GLOO_SOCKET_IFNAME"},
      missing);
}

}  // namespace

std::vector<UniqueFd> connect_mesh(const MeshListener& listener, const Hello& own,
                                   std::span<const Endpoint> endpoints, Deadline deadline,
                                   const std::stop_token& stop) {
  std::vector<UniqueFd> connections(endpoints.size());
  // A rank answers calls when it has called all ranks below itself: rank 0 is the first to answer.
  for (std::uint32_t rank = 0; rank < own.rank; ++rank) {
    connections[rank] = call(endpoints[rank], own, rank, deadline, stop);
  }
  PendingCallers reception(listener.fd(), own);
  auto missing = missing_from(connections, own);
  while (!missing.empty() && steady_clock::now() < deadline && !stop.stop_requested()) {
    const auto until = stop.stop_possible() ? slice_of(deadline, kSlice) : deadline;
    for (auto& caller : reception.welcome(until)) connections[caller.rank] = std::move(caller.connection);
    missing = missing_from(connections, own);
  }
  if (stop.stop_requested()) throw CommError("rendezvous", {.what = "connecting was given up"});
  if (!missing.empty()) report(std::move(missing), own, listener.endpoint());
  for (const auto& connection : connections) {
    if (connection) tune_socket(connection.get());
  }
  return connections;
}

namespace {

// Silent callers are closed after this time, since they use up descriptors.
constexpr auto kPatience = milliseconds(5000);
constexpr std::size_t kMostGuests = 256;

// Whether accept() failed only because the caller is gone or nobody calls.
bool is_passing(int error) {
  return error == EINTR || error == ECONNABORTED || error == EAGAIN || error == EWOULDBLOCK ||
         error == EPROTO || error == ENETUNREACH || error == EHOSTUNREACH || error == ENETDOWN;
}

void await_any(std::vector<pollfd>& polled, Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000)));
}

[[noreturn]] void refuse(std::uint32_t rank, int error) {
  throw CommError("rendezvous", {.what = "cannot accept the other ranks' connections",
                                 .got = std::strerror(error),
                                 .where = "rank " + std::to_string(rank),
                                 .hint = error == EMFILE ? "raise the limit on open files (ulimit -n)" : ""});
}

}  // namespace

bool say(int fd, const Hello& hello) {
  return ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

void Greeting::read(int fd) {
  const auto count = ::recv(fd, reinterpret_cast<char*>(&hello_) + got_, sizeof hello_ - got_, MSG_DONTWAIT);
  if (count < 0 && is_passing(errno)) return;
  if (count <= 0) {
    state_ = kStranger;
    return;
  }
  got_ += static_cast<std::size_t>(count);
  if (got_ < sizeof hello_) return;
  const bool is_rank = hello_.magic == own_.magic && hello_.token == own_.token &&
                       hello_.world_size == own_.world_size && hello_.rank < own_.world_size;
  state_ = is_rank ? kWelcome : kStranger;
}

std::vector<PendingCallers::Caller> PendingCallers::welcome(Deadline deadline) {
  std::vector<pollfd> polled{{.fd = listener_, .events = POLLIN, .revents = 0}};
  for (const auto& guest : callers_) {
    polled.push_back({.fd = guest.connection.get(), .events = POLLIN, .revents = 0});
  }
  await_any(polled, deadline);
  accept_all();
  for (auto& guest : callers_) guest.greeting.read(guest.connection.get());
  return take_ranks();
}

void PendingCallers::accept_all() {
  for (;;) {
    UniqueFd caller(::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int error = errno;
    if (caller) {
      callers_.push_back({std::move(caller), Greeting(own_), steady_clock::now() + kPatience});
      if (callers_.size() > kMostGuests) callers_.pop_front();
    } else if (is_passing(error)) {
      if (error != EINTR) return;
    } else {
      refuse(own_.rank, error);
    }
  }
}

std::vector<PendingCallers::Caller> PendingCallers::take_ranks() {
  std::vector<Caller> callers;
  std::erase_if(callers_, [&](PendingCaller& guest) {
    if (guest.greeting.state() == Greeting::kUnfinished) return steady_clock::now() >= guest.leaves_at;
    const auto& hello = guest.greeting.hello();
    const bool is_awaited = guest.greeting.state() == Greeting::kWelcome && hello.rank > own_.rank;
    if (is_awaited && say(guest.connection.get(), own_)) {
      callers.push_back({hello.rank, std::move(guest.connection)});
    }
    return true;
  });
  return callers;
}

namespace {

[[noreturn]] void fail(const std::string& what, const std::string& reason) {
  throw CommError("rendezvous", {.what = what, .got = reason});
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
  auto address = interface.empty() ? route_to(main_address).own : address_of_interface(interface);
  set_port(address, 0);
  socket_ = UniqueFd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_ || ::bind(socket_.get(), address.get(), address.length) != 0 ||
      ::listen(socket_.get(), SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    fail("cannot listen for the other ranks at " + address.text(), reason);
  }
  endpoint_ = endpoint_of(socket_.get());
}

}  // namespace lockstep::rendezvous
