#include "rendezvous/client.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "rendezvous/frames.h"

namespace lockstep::rendezvous {
namespace {

constexpr auto kClosed = "the connection is closed";
constexpr auto kNoAnswer = "no answer";

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

Expected<void, LinkFailure> link_failure(const std::string& text, bool is_final = false) {
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
  if (!welcome) return link_failure(welcome.error());
  if (welcome->front() == static_cast<char>(Welcome::kLater))
    return link_failure(receive_reason(fd, deadline));
  if (welcome->front() == static_cast<char>(Welcome::kRefused))
    return link_failure(receive_reason(fd, deadline), true);
  const auto shown = receive_exactly(fd, kProofBytes, deadline);
  if (!shown) return link_failure(shown.error());
  if (same_secret(*shown, expected_proof)) return {};
  return link_failure("it is of another job, or has another token", true);
}

Expected<void, LinkFailure> introduce(int fd, const std::string& key, Deadline deadline) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto theirs = await_challenge(fd, deadline);
  if (!theirs) return Unexpected{theirs.error()};
  const auto own = random_bytes(kChallengeBytes);
  if (const auto sent = send_all(fd, own + proof(key, Side::kClient, *theirs, own), deadline); !sent)
    return link_failure(sent.error());
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

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kAttempt = milliseconds(2000);
constexpr auto kMostWait = milliseconds(std::int64_t{1000} * 60 * 60 * 24 * 365);

[[noreturn]] void refuse(const TcpEndpoint& server, const std::string& why) {
  throw CommError("rendezvous", {.what = "the store at " + server.text() + " cannot be used",
                                 .got = why,
                                 .hint = "it is served by the launcher of the job"});
}

KvWriter about_keys(KvQuery query, std::span<const std::string> keys) {
  KvWriter question(query);
  question.number(static_cast<std::int64_t>(keys.size()));
  for (const auto& key : keys) question.text(key);
  return question;
}

}  // namespace

KvClient::KvClient(TcpEndpoint server, std::string key, Milliseconds patience)
    : server_(std::move(server)), key_(std::move(key)), patience_(patience) {
  idle_.push_back(take_link(steady_clock::now() + std::min(patience, kMostWait)));
}

FrameLink KvClient::take_link(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    while (!idle_.empty()) {
      auto link = std::move(idle_.back());
      idle_.pop_back();
      if (link.is_open()) return link;
    }
  }
  for (auto pause = milliseconds(5);; pause = std::min(2 * pause, milliseconds(200))) {
    auto link = FrameLink::connect(server_, key_, std::min(deadline, steady_clock::now() + kAttempt));
    if (link) return std::move(*link);
    if (link.error().is_final) refuse(server_, link.error().text);
    if (steady_clock::now() + pause >= deadline)
      throw Timeout("rendezvous", {.what = "the store at " + server_.text() + " cannot be reached",
                                   .got = link.error().text,
                                   .hint = "it is served by the launcher of the job"});
    std::this_thread::sleep_for(pause);
  }
}

// A link with a failed exchange is dropped, since the answer may still arrive.
std::string KvClient::exchange(const KvWriter& question, Milliseconds wait) {
  const auto deadline =
      steady_clock::now() + std::min(wait, kMostWait) + std::min(patience_.load(), kMostWait);
  auto link = take_link(deadline);
  if (const auto sent = link.send(kKvLetter + question.bytes(), deadline); !sent)
    refuse(server_, sent.error());
  auto answer = link.receive(deadline);
  if (!answer) refuse(server_, answer.error());
  if (!*answer) give_up();
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(link));
  return std::move(**answer);
}

void KvClient::give_up() const {
  throw Timeout("rendezvous",
                {.what = "store: no answer from " + server_.text(),
                 .hint = "the launcher that serves it is stopped, or its host cannot be reached"});
}

// The answer after its status; empty after kTimeout.
KvReader KvClient::ask(std::string& answer, const KvWriter& question, Milliseconds wait) {
  answer = exchange(question, wait);
  KvReader reader(answer);
  if (static_cast<KvStatus>(reader.kind()) == KvStatus::kError) refuse(server_, std::string(reader.text()));
  return reader;
}

void KvClient::set(const std::string& key, std::string_view value) {
  exchange(KvWriter(KvQuery::kSet).text(key).text(value), {});
}

std::optional<std::string> KvClient::get(const std::string& key, Milliseconds timeout) {
  const auto answer = exchange(KvWriter(KvQuery::kGet).text(key).number(timeout.count()), timeout);
  KvReader reader(answer);
  if (static_cast<KvStatus>(reader.kind()) != KvStatus::kOk) return std::nullopt;
  return std::string(reader.text());
}

std::int64_t KvClient::add(const std::string& key, std::int64_t delta) {
  std::string answer;
  return ask(answer, KvWriter(KvQuery::kAdd).text(key).number(delta), {}).number();
}

std::string KvClient::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) {
  std::string answer;
  const auto question = KvWriter(KvQuery::kCompareSet).text(key).text(expected).text(desired);
  return std::string(ask(answer, question, {}).text());
}

bool KvClient::check(std::span<const std::string> keys) {
  std::string answer;
  return ask(answer, about_keys(KvQuery::kCheck, keys), {}).number() == 1;
}

bool KvClient::wait(std::span<const std::string> keys, Milliseconds timeout) {
  const auto answer = exchange(about_keys(KvQuery::kWait, keys).number(timeout.count()), timeout);
  return static_cast<KvStatus>(KvReader(answer).kind()) == KvStatus::kOk;
}

bool KvClient::erase(const std::string& key) {
  std::string answer;
  return ask(answer, KvWriter(KvQuery::kDelete).text(key), {}).number() == 1;
}

std::int64_t KvClient::num_keys() {
  std::string answer;
  return ask(answer, KvWriter(KvQuery::kNumKeys), {}).number();
}

void KvClient::close_copies() {
  for (auto& link : idle_) link.close();
}

}  // namespace lockstep::rendezvous
