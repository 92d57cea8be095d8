#include "launch/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/sockets.h"

namespace lockstep::launch {
namespace {

// Of all addresses, as rank 0 will want it; a machine may be without IPv6.
UniqueFd bind_any() {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&any6), sizeof any6) == 0) return fd;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0)
    throw_errno("no port is free for rank 0");
  return fd;
}

}  // namespace

FreePort::FreePort() : socket_(bind_any()), number_(port_of(socket_.get())) {}

}  // namespace lockstep::launch
