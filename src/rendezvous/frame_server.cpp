// FrameServer: a server of messages over TCP for clients that know a key.
#include "rendezvous/store_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <lockstep/base/error.h>

#include "rendezvous/addresses.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;  // at a time
constexpr std::size_t kMostUnread = std::size_t{1}
                                    << 20;  // unread answers, above which no further questions are read
constexpr std::size_t kAnswerBytes = kChallengeBytes + kProofBytes;

template <class Call>
std::string address_text(int fd, Call ask) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (ask(fd, plain, &length) != 0) return {};
  if (::getnameinfo(plain, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return host.data();
}

}  // namespace

ServerConnection::ServerConnection(std::uint64_t id, UniqueFd socket, const std::string& key,
                                   std::set<std::uint64_t>& changed)
    : id_(id),
      socket_(std::move(socket)),
      key_(key),
      changed_(changed),
      challenge_(random_bytes(kChallengeBytes)) {
  tune_socket(fd());
  queue(std::string(kServerGreeting) + challenge_);
  flush();
}

void ServerConnection::give_up() {
  is_broken_ = true;
  changed_.insert(id_);
}

void ServerConnection::turn_away(std::string_view why) { refuse(Welcome::kLater, why); }

void ServerConnection::refuse(Welcome how, std::string_view why) {
  queue(static_cast<char>(how) + reason(why));
  flush();
  give_up();
}

void ServerConnection::receive() {
  std::array<char, kReadBytes> bytes;
  const auto wanted = is_trusted_ ? bytes.size() : kAnswerBytes - answer_.size();
  const auto count = ::recv(fd(), bytes.data(), wanted, 0);
  if (count <= 0) {
    if (count == 0 || !is_transient(errno)) give_up();
    return;
  }
  const std::string_view arrived(bytes.data(), static_cast<std::size_t>(count));
  if (is_trusted_) {
    arrived_.append(arrived);
  } else if ((answer_ += arrived).size() == kAnswerBytes) {
    check_proof();
  }
}

void ServerConnection::check_proof() {
  const auto theirs = std::string_view(answer_).substr(0, kChallengeBytes);
  const auto shown = std::string_view(answer_).substr(kChallengeBytes);
  is_trusted_ = same_secret(shown, proof(key_, Side::kClient, challenge_, theirs));
  if (!is_trusted_) return refuse(Welcome::kRefused, "it is of another job, or has another token");
  queue(static_cast<char>(Welcome::kTrusted) + proof(key_, Side::kServer, challenge_, theirs));
  flush();
}

std::optional<std::string> ServerConnection::next_message() {
  if (!is_trusted_ || is_broken_ || !wants_to_read()) return std::nullopt;
  auto message = arrived_.next();
  if (message) return std::move(*message);
  give_up();
  return std::nullopt;
}

bool ServerConnection::wants_to_read() const { return unsent_.size() - sent_ < kMostUnread; }

void ServerConnection::send(std::string_view payload) {
  queue(to_frame(payload));
  flush();
}

void ServerConnection::queue(std::string_view bytes) {
  if (sent_ > kMostUnread || sent_ == unsent_.size()) {
    unsent_.erase(0, sent_);
    sent_ = 0;
  }
  unsent_ += bytes;
}

void ServerConnection::flush() {
  while (wants_to_write() && !is_broken_) {
    const auto count = ::send(fd(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (count > 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (!is_transient(errno)) {
      give_up();
    } else {
      break;
    }
  }
  if (wants_to_write()) changed_.insert(id_);
}

std::string ServerConnection::peer_address() const { return address_text(fd(), ::getpeername); }

bool ServerConnection::is_local() const { return peer_address() == address_text(fd(), ::getsockname); }

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::uint64_t kWake = 0, kFirstListener = 1;
constexpr auto kPatienceWithStrangers = 2000ms;
constexpr auto kTimeToAnswer = 250ms;  // enough for an honest client, also a distant one
constexpr std::size_t kMostStrangers = 256;
constexpr int kAcceptedAtOnce = 32;
constexpr int kMessagesAtOnce = 64;
constexpr auto kPauseWithoutDescriptors = 100ms;

void require(bool holds, const std::string& what) {
  if (!holds) throw CommError("rendezvous", {.what = what, .got = std::strerror(errno)});
}

void control(const UniqueFd& epoll, int operation, int fd, std::uint32_t events, std::uint64_t id) {
  epoll_event event{.events = events, .data = {.u64 = id}};
  require(::epoll_ctl(epoll.get(), operation, fd, &event) == 0, "a socket cannot be watched");
}

// Leaves signals to the threads that expect them.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

FrameServer::FrameServer(std::vector<UniqueFd> sockets, std::string key, FrameServices services)
    : sockets_(std::move(sockets)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      key_(std::move(key)),
      services_(std::move(services)),
      next_id_(kFirstListener + sockets_.size()) {
  require(epoll_ && wake_, "no descriptor is left");
  for (std::size_t i = 0; i < sockets_.size(); ++i)
    control(epoll_, EPOLL_CTL_ADD, sockets_[i].get(), EPOLLIN, kFirstListener + i);
  control(epoll_, EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWake);
  thread_ = std::jthread([this](const std::stop_token& stop) {
    block_signals();
    serve(stop);
  });
}

FrameServer::~FrameServer() {
  thread_.request_stop();
  ::eventfd_write(wake_.get(), 1);
}

void FrameServer::serve(const std::stop_token& stop) {
  std::array<epoll_event, 64> events{};
  while (!stop.stop_requested()) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), wait_time_ms());
    for (int i = 0; i < count; ++i) {
      const auto id = events[static_cast<std::size_t>(i)].data.u64;
      if (id >= kFirstListener && id < kFirstListener + sockets_.size())
        accept_some(sockets_[id - kFirstListener]);
      const auto found = connections_.find(id);
      if (found != connections_.end()) attend(*found->second, events[static_cast<std::size_t>(i)].events);
    }
    hand_over_rest();
    let_services_act();
    turn_away_late();
    settle();
  }
}

int FrameServer::wait_time_ms() const {
  if (!unfinished_.empty()) return 0;
  std::optional<Deadline> next = listens_again_at_;
  const auto sooner = [&](std::optional<Deadline> one) {
    if (one) next = std::min(*one, next.value_or(*one));
  };
  if (!strangers_.empty()) sooner(strangers_.front().came_at + kPatienceWithStrangers);
  for (const auto& [letter, service] : services_) sooner(service->next_deadline());
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void FrameServer::listen(bool wanted) {
  for (std::size_t i = 0; i < sockets_.size(); ++i)
    control(epoll_, EPOLL_CTL_MOD, sockets_[i].get(), wanted ? std::uint32_t{EPOLLIN} : 0U,
            kFirstListener + i);
}

void FrameServer::accept_some(const UniqueFd& socket) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    UniqueFd caller(::accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!caller) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      make_room();
      listen(false);
      listens_again_at_ = steady_clock::now() + kPauseWithoutDescriptors;
      return;
    }
    if (strangers_.size() >= kMostStrangers) make_room();
    const auto id = next_id_++;
    auto connection = std::make_unique<ServerConnection>(id, std::move(caller), key_, changed_);
    control(epoll_, EPOLL_CTL_ADD, connection->fd(), EPOLLIN, id);
    watched_[id] = EPOLLIN;
    connections_.emplace(id, std::move(connection));
    strangers_.push_back({id, steady_clock::now()});
  }
}

void FrameServer::turn_away(std::list<Stranger>::iterator stranger, std::string_view why) {
  const auto found = connections_.find(stranger->id);
  strangers_.erase(stranger);
  if (found != connections_.end()) found->second->turn_away(why);
}

// Closes the oldest stranger that has sent nothing although it had the time; otherwise the oldest one.
void FrameServer::make_room() {
  const auto silent_since = steady_clock::now() - kTimeToAnswer;
  const auto is_idle = [&](const Stranger& each) {
    const auto found = connections_.find(each.id);
    return each.came_at <= silent_since && (found == connections_.end() || found->second->is_silent());
  };
  const auto idle = std::ranges::find_if(strangers_, is_idle);
  if (!strangers_.empty())
    turn_away(idle != strangers_.end() ? idle : strangers_.begin(), "too many connect at once");
}

void FrameServer::turn_away_late() {
  const auto now = steady_clock::now();
  while (!strangers_.empty() && strangers_.front().came_at + kPatienceWithStrangers <= now)
    turn_away(strangers_.begin(), "it took too long to show the token");
  if (!listens_again_at_ || *listens_again_at_ > now) return;
  listens_again_at_.reset();
  listen(true);
}

void FrameServer::attend(ServerConnection& connection, std::uint32_t events) {
  changed_.insert(connection.id());
  const bool was_trusted = connection.is_trusted();
  if ((events & EPOLLOUT) != 0) connection.flush();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !connection.is_broken()) connection.receive();
  if (!was_trusted && connection.is_trusted())
    std::erase_if(strangers_, [&](const Stranger& each) { return each.id == connection.id(); });
  hand_over_messages(connection);
}

void FrameServer::hand_over_messages(ServerConnection& connection) {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    const auto message = connection.next_message();
    if (!message) return;
    const auto service = message->empty() ? services_.end() : services_.find(message->front());
    if (service == services_.end()) return connection.give_up();
    service->second->on_message(connection, std::string_view(*message).substr(1));
  }
  unfinished_.insert(connection.id());
}

void FrameServer::hand_over_rest() {
  for (const auto id : std::exchange(unfinished_, {})) {
    const auto found = connections_.find(id);
    if (found != connections_.end()) hand_over_messages(*found->second);
  }
}

void FrameServer::let_services_act() {
  for (const auto& [letter, service] : services_) {
    const auto due = service->next_deadline();
    if (due && *due <= steady_clock::now()) service->on_time();
  }
}

// Handles connections that have something to send or are closed. A service that is told of a closed
// connection may send to others, or close them.
void FrameServer::settle() {
  while (!changed_.empty()) {
    const auto found = connections_.find(changed_.extract(changed_.begin()).value());
    if (found == connections_.end()) continue;
    if (found->second->is_broken()) {
      forget(*found->second);
      connections_.erase(found);
    } else {
      watch(*found->second);
    }
  }
}

void FrameServer::forget(const ServerConnection& connection) {
  watched_.erase(connection.id());
  std::erase_if(strangers_, [&](const Stranger& each) { return each.id == connection.id(); });
  if (!connection.is_trusted()) return;
  for (const auto& [letter, service] : services_) service->on_closed(connection);
}

void FrameServer::watch(ServerConnection& connection) {
  const std::uint32_t wanted = (connection.wants_to_read() ? std::uint32_t{EPOLLIN} : 0U) |
                               (connection.wants_to_write() ? std::uint32_t{EPOLLOUT} : 0U);
  auto& watched = watched_[connection.id()];
  if (watched != wanted) control(epoll_, EPOLL_CTL_MOD, connection.fd(), watched = wanted, connection.id());
}

}  // namespace lockstep::rendezvous
