#include "base/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/open_files.h"
#include "base/sockets.h"

namespace lockstep {
namespace {

// Below are more services that have a port of their own; then come those where launchers meet, 29400 and
// 29500, and those that Kubernetes gives to services without listening on them.
constexpr PortRange kQuiet{20'000, 29'400};
constexpr int kPastTheLast = 65'536;
constexpr int kLeastRoom = 1'000;
constexpr int kAttempts = 100;

// The ports that a connection may get.
PortRange of_connections() {
  PortRange range{};
  int last = -1;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> range.first >> last;
  range.end = last + 1;
  return range;
}

// The port, if it is free, or any that is where it is 0; else 0. A machine may be without IPv6.
int bound(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int both = 0;  // whatever net.ipv6.bindv6only says
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

// 0 where there is none.
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
