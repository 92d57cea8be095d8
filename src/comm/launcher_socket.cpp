#include "comm/launcher_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <lockstep/base/env.h>

namespace lockstep::detail {
namespace {

constexpr auto kVariable = "LOCKSTEP_LISTEN_FD";

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

std::optional<int> take_launcher_socket(int port) {
  if (!env::get(kVariable)) return std::nullopt;
  const auto fd = static_cast<int>(env::require_int(kVariable));
  if (port_of(fd) != port) return std::nullopt;  // the program meets elsewhere
  env::unset(kVariable);
  return fd;
}

}  // namespace lockstep::detail
