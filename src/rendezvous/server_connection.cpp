#include "rendezvous/server_connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "rendezvous/socket_options.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;  // at a time
constexpr std::size_t kMostUnread = std::size_t{1} << 20;  // answers that wait before questions have to
constexpr std::size_t kAnswerBytes = kChallengeBytes + kProofBytes;

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

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

}  // namespace lockstep::rendezvous
