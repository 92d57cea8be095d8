#include "base/sockets.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/system_error_text.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

Expected<UniqueFd> connect_to(const addrinfo& address, Deadline deadline) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Unexpected{detail::system_error_text(errno)};
  int error = ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    if (!await_ready(fd.get(), POLLOUT, deadline)) return Unexpected{detail::system_error_text(ETIMEDOUT)};
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error != 0) return Unexpected{detail::system_error_text(error)};
  return fd;
}

}  // namespace

Expected<AddressList> resolve(const std::string& host, int port, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (status != 0) return Unexpected{std::string(::gai_strerror(status))};
  return AddressList(found, &::freeaddrinfo);
}

bool await_ready(int fd, short events, Deadline deadline) {
  pollfd wanted{.fd = fd, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Expected<UniqueFd> connect_to(const std::string& host, int port, Deadline deadline) {
  const auto addresses = resolve(host, port);
  if (!addresses) return Unexpected{"cannot resolve the host name: " + addresses.error()};
  Expected<UniqueFd> outcome = Unexpected{"no address"};
  for (const addrinfo* each = addresses->get(); each != nullptr && !outcome; each = each->ai_next) {
    outcome = connect_to(*each, deadline);
  }
  return outcome;
}

}  // namespace lockstep
