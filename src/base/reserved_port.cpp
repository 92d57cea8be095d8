#include "base/reserved_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>
#include <random>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/sockets.h"

namespace lockstep {
namespace {

constexpr int kLowest = 20'000;  // below are more services that have a port of their own
constexpr int kLeastRoom = 1'000;
constexpr int kAttempts = 100;

// The first port that a connection may get.
int first_of_connections() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

// The port, if it is free, or any that is where it is 0; else 0. A machine may be without IPv6.
int bound(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<std::uint16_t>(port));
  UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
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
int reserved() {
  const int end = first_of_connections();
  if (end - kLowest < kLeastRoom) return 0;
  std::random_device random;
  std::uniform_int_distribution port(kLowest, end - 1);
  for (int i = 0; i < kAttempts; ++i)
    if (const int free = bound(port(random)); free != 0) return free;
  return 0;
}

}  // namespace

int reserved_port() {
  if (const int port = reserved(); port != 0) return port;
  if (const int port = bound(0); port != 0) return port;
  throw ConfigError("base", {.what = "no port of this machine is free", .hint = "set MASTER_PORT"});
}

}  // namespace lockstep
