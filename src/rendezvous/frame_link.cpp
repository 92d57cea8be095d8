#include "rendezvous/frame_link.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/format.h"
#include "rendezvous/frames.h"

namespace lockstep::rendezvous {
namespace {

constexpr auto kClosed = "the connection is closed";
constexpr auto kNoAnswer = "no answer";

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

// The bytes that have arrived, at most `most`; nothing when the deadline passed.
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
    if (!*some) return Unexpected{kNoAnswer};
    text += **some;
  }
  return text;
}

Expected<void, LinkFailure> fail(const std::string& text, bool is_final = false) {
  return Unexpected<LinkFailure>{{text, is_final}};
}

// The server's challenge. It follows a greeting, so that other programs are recognized before they have sent
// a whole challenge.
Expected<std::string, LinkFailure> await_challenge(int fd, Deadline deadline) {
  const auto greeting = receive_exactly(fd, kServerGreeting.size(), deadline);
  if (!greeting && greeting.error() == kNoAnswer)
    return Unexpected<LinkFailure>{{"somebody listens there, but says nothing", false, true}};
  if (!greeting) return Unexpected<LinkFailure>{{greeting.error()}};
  if (*greeting != kServerGreeting) {
    const bool is_ours = greeting->starts_with(kServerGreeting.substr(0, kServerGreeting.size() - 1));
    const std::string who = is_ours ? "another version of lockstep" : "another program";
    return Unexpected<LinkFailure>{{who + " answers there", true, true}};
  }
  auto challenge = receive_exactly(fd, kChallengeBytes, deadline);
  if (!challenge) return Unexpected<LinkFailure>{{challenge.error()}};
  return std::move(*challenge);
}

// The reason of a refusal, without control characters: the sender is not trusted.
std::string receive_reason(int fd, Deadline deadline) {
  const auto length = receive_exactly(fd, 1, deadline);
  auto text = length ? receive_exactly(fd, static_cast<unsigned char>(length->front()), deadline) : length;
  if (!text) return "it refuses without a reason";
  for (char& letter : *text)
    if (letter < ' ' || letter == '\x7f') letter = '?';
  return *text;
}

Expected<void, LinkFailure> await_welcome(int fd, const std::string& expected_proof, Deadline deadline) {
  const auto welcome = receive_exactly(fd, 1, deadline);
  if (!welcome) return fail(welcome.error());
  if (welcome->front() == static_cast<char>(Welcome::kLater)) return fail(receive_reason(fd, deadline));
  if (welcome->front() == static_cast<char>(Welcome::kRefused))
    return fail(receive_reason(fd, deadline), true);
  const auto shown = receive_exactly(fd, kProofBytes, deadline);
  if (!shown) return fail(shown.error());
  if (same_secret(*shown, expected_proof)) return {};
  return fail("it is of another job, or has another token", true);
}

Expected<void, LinkFailure> introduce(int fd, const std::string& key, Deadline deadline) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto theirs = await_challenge(fd, deadline);
  if (!theirs) return Unexpected{theirs.error()};
  const auto own = random_bytes(kChallengeBytes);
  if (const auto sent = send_all(fd, own + proof(key, Side::kClient, *theirs, own), deadline); !sent)
    return fail(sent.error());
  return await_welcome(fd, proof(key, Side::kServer, *theirs, own), deadline);
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
