// Sockets and ports for tests of how ranks meet.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

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

/// A port that was free just now.
inline int free_port() { return Listener().port(); }

}  // namespace lockstep::test
