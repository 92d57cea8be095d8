#include "rendezvous/frame_link.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/system_error_text.h"
#include "rendezvous/authentication.h"

namespace lockstep::rendezvous {
namespace {

constexpr auto kClosed = "the connection is closed";

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

Expected<void> send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (!is_transient(errno)) {
      return Unexpected{detail::system_error_text(errno)};
    } else if (!await_ready(fd, POLLOUT, deadline)) {
      return Unexpected{"the server does not read"};
    }
  }
  return {};
}

// What is there, at most `most` bytes; nothing when the deadline passed.
Expected<std::optional<std::string>> receive_some(int fd, std::size_t most, Deadline deadline) {
  std::array<char, 1 << 14> bytes;
  for (;;) {
    const auto count = ::recv(fd, bytes.data(), std::min(most, bytes.size()), 0);
    if (count > 0)
      return std::optional<std::string>(std::in_place, bytes.data(), static_cast<std::size_t>(count));
    if (count == 0) return Unexpected{kClosed};
    if (!is_transient(errno)) return Unexpected{detail::system_error_text(errno)};
    if (!await_ready(fd, POLLIN, deadline)) return std::optional<std::string>();
  }
}

Expected<std::string> receive_exactly(int fd, std::size_t bytes, Deadline deadline) {
  std::string text;
  while (text.size() < bytes) {
    auto some = receive_some(fd, bytes - text.size(), deadline);
    if (!some) return Unexpected{some.error()};
    if (!*some) return Unexpected{"no answer"};
    text += **some;
  }
  return text;
}

Expected<void, LinkFailure> fail(const std::string& text, bool is_final = false) {
  return Unexpected<LinkFailure>{{text, is_final}};
}

Expected<void, LinkFailure> introduce(int fd, const std::string& key, Deadline deadline) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto greeting = receive_exactly(fd, kServerGreeting.size() + kChallengeBytes, deadline);
  if (!greeting) return fail(greeting.error());
  if (!greeting->starts_with(kServerGreeting)) return fail("another program answers there", true);
  const auto theirs = greeting->substr(kServerGreeting.size());
  const auto own = random_bytes(kChallengeBytes);
  if (const auto sent = send_all(fd, own + proof(key, Side::kClient, theirs, own), deadline); !sent)
    return fail(sent.error());
  const auto answer = receive_exactly(fd, kProofBytes, deadline);
  if (!answer && answer.error() == "no answer") return fail(answer.error());
  if (!answer || !same_secret(*answer, proof(key, Side::kServer, theirs, own)))
    return fail("it is of another job, or has another token", true);
  return {};
}

}  // namespace

Expected<FrameLink, LinkFailure> FrameLink::connect(const TcpEndpoint& endpoint, const std::string& key,
                                                    Deadline deadline) {
  auto socket = connect_to(endpoint.host, endpoint.port, deadline);
  if (!socket) return Unexpected<LinkFailure>{{socket.error()}};
  if (const auto known = introduce(socket->get(), key, deadline); !known) return Unexpected{known.error()};
  return FrameLink(std::move(*socket));
}

Expected<void> FrameLink::send(std::string_view payload, Deadline deadline) {
  return send_all(fd(), to_frame(payload), deadline);
}

Expected<std::optional<std::string>> FrameLink::receive(Deadline deadline) {
  for (;;) {
    auto payload = arrived_.next();
    if (!payload || *payload) return payload;
    auto some = receive_some(fd(), 1 << 14, deadline);
    if (!some || !*some) return some;
    arrived_.append(**some);
  }
}

void FrameLink::finish(Deadline deadline) {
  ::shutdown(fd(), SHUT_WR);
  for (auto some = receive(deadline); some && *some;) some = receive(deadline);
}

}  // namespace lockstep::rendezvous
