#include "launch/listen_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/sockets.h"

namespace lockstep::launch {
namespace {

AddressList addresses_of(const std::string& host, int port) {
  auto found = resolve(host, port, AI_PASSIVE);
  if (found) return std::move(*found);
  throw Error("launch", {.what = "cannot resolve main_address \"" + host + "\"",
                         .got = found.error(),
                         .hint = "check the name and /etc/hosts"});
}

UniqueFd try_listen(const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
  if (!fd) return fd;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool listening =
      ::bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd.get(), SOMAXCONN) == 0;
  return listening ? std::move(fd) : UniqueFd();
}

}  // namespace

ListenSocket listen_on(std::span<const std::string> addresses, int port) {
  for (const auto& address : addresses) {
    const auto candidates = addresses_of(address, port);
    for (const addrinfo* candidate = candidates.get(); candidate != nullptr; candidate = candidate->ai_next) {
      if (auto fd = try_listen(*candidate)) {
        const int got = port_of(fd.get());
        return {std::move(fd), got};
      }
    }
  }
  throw_errno("cannot listen on " + addresses.back() + " port " + std::to_string(port),
              errno == EADDRNOTAVAIL ? "it must be an address of this machine, of an interface that is up: "
                                       "even lo may be down"
                                     : "choose another main_port, or 0 for a free one");
}

}  // namespace lockstep::launch
