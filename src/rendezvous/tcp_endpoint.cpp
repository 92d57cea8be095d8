#include "rendezvous/tcp_endpoint.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <thread>

#include <lockstep/base/error.h>

#include "base/system_error_text.h"

namespace lockstep::rendezvous {
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

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

UniqueFd listening_socket(const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd) return fd;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd.get(), SOMAXCONN) == 0)
    return fd;
  const int error = errno;  // which close() may change
  fd.reset();
  errno = error;
  return fd;
}

}  // namespace

std::string TcpEndpoint::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
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
  if (host.empty() || (!rest.empty() && !rest.starts_with(':'))) return Unexpected{kForm};
  if (rest.empty()) return TcpEndpoint{std::string(host), default_port};
  const auto port = parse_port(rest.substr(1));
  if (!port) return Unexpected{kForm + std::string(" with ") + port.error()};
  return TcpEndpoint{std::string(host), *port};
}

Expected<BoundSocket, ListenFailure> try_listen(const TcpEndpoint& endpoint) {
  const auto addresses = resolve(endpoint.host, endpoint.port);
  if (!addresses) return Unexpected<ListenFailure>{{0, "cannot resolve the host name: " + addresses.error()}};
  int error = EADDRNOTAVAIL;
  for (const addrinfo* each = addresses->get(); each != nullptr; each = each->ai_next) {
    auto fd = listening_socket(*each);
    if (fd) {
      const int port = port_of(fd.get());
      return BoundSocket{std::move(fd), {endpoint.host, port}};
    }
    if (errno != EADDRNOTAVAIL) error = errno;
  }
  return Unexpected<ListenFailure>{{error, detail::system_error_text(error)}};
}

BoundSocket listen_by(const TcpEndpoint& endpoint, Deadline deadline) {
  for (;;) {
    auto bound = try_listen(endpoint);
    if (bound) return std::move(*bound);
    if (bound.error().error == EADDRINUSE && steady_clock::now() + kPause < deadline) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    throw CommError("rendezvous", {.what = "cannot listen on " + endpoint.text(),
                                   .got = bound.error().text,
                                   .hint = bound.error().error == EADDRINUSE
                                               ? "end the program that uses the port, or choose another one"
                                               : "it must be an address of this machine"});
  }
}

}  // namespace lockstep::rendezvous
