#include "rendezvous/mesh_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <lockstep/base/error.h>

#include "rendezvous/own_address.h"

namespace lockstep::rendezvous {
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
