#include "rendezvous/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::rendezvous {
namespace {

bool wait_writable(int fd, Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
  return left.count() > 0 &&
         ::poll(&writable, 1, static_cast<int>(std::min<long>(left.count(), 1 << 30))) > 0;
}

void advance(msghdr& message, std::size_t sent) {
  while (sent > 0 && sent >= message.msg_iov->iov_len) {
    sent -= message.msg_iov->iov_len;
    ++message.msg_iov;
    --message.msg_iovlen;
  }
  if (sent == 0) return;
  message.msg_iov->iov_base = static_cast<char*>(message.msg_iov->iov_base) + sent;
  message.msg_iov->iov_len -= sent;
}

// The first message in `bytes`, which it is cut from; false when it has not arrived whole.
bool take_message(std::string_view& bytes, Message& message) {
  if (bytes.size() < sizeof(Header)) return false;
  std::memcpy(&message.header, bytes.data(), sizeof(Header));
  const auto whole = sizeof(Header) + message.header.payload_bytes;
  if (bytes.size() < whole) return false;
  message.payload = bytes.substr(sizeof(Header), message.header.payload_bytes);
  bytes.remove_prefix(whole);
  return true;
}

}  // namespace

bool Connection::send(const Header& header, std::string_view payload, Deadline deadline) {
  iovec parts[2] = {{const_cast<Header*>(&header), sizeof header},
                    {const_cast<char*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = payload.empty() ? 1 : 2;
  std::size_t left = sizeof header + payload.size();
  const std::lock_guard lock(sending_);
  while (left > 0) {
    const auto sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      left -= static_cast<std::size_t>(sent);
      advance(message, static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    const bool is_full = errno == EAGAIN || errno == EWOULDBLOCK;
    if (is_full && wait_writable(fd(), deadline)) continue;
    const bool is_cut = left < sizeof header + payload.size();
    if (is_cut) ::shutdown(fd(), SHUT_RDWR);  // nothing that follows could be understood
    return false;
  }
  return true;
}

bool Connection::receive(std::vector<Message>& messages) {
  char buffer[16384];
  bool is_open = true;
  for (;;) {
    const auto got = ::recv(fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      is_open = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      break;
    }
    unparsed_.append(buffer, static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < sizeof buffer) break;
  }
  std::string_view bytes = unparsed_;
  for (Message message; take_message(bytes, message);) messages.push_back(std::move(message));
  unparsed_.erase(0, unparsed_.size() - bytes.size());
  return is_open;
}

}  // namespace lockstep::rendezvous
