// Sockets and ports for tests of how ranks meet.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <utility>

namespace lockstep::test {

/// A socket that listens on a free port of the loopback interface.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    bind(fd_, reinterpret_cast<sockaddr*>(&address), length);
    listen(fd_, 16);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() {
    if (fd_ >= 0) ::close(fd_);
  }
  int port() const { return port_; }
  /// The socket, which is the caller's now.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
  int port_ = 0;
};

/// A port that nobody listens on, of those that Linux gives to no connection meanwhile: these begin at 32768.
inline int free_port() {
  std::random_device random;
  std::uniform_int_distribution<int> any(25'001, 32'767);
  while (true) {
    const int port = any(random);
    const int probe = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool is_free = bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    ::close(probe);
    if (is_free) return port;
  }
}

}  // namespace lockstep::test
