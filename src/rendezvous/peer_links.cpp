#include "rendezvous/peer_links.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

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

// Takes the first message from `bytes`; false where it has not arrived completely.
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
    if (is_cut) ::shutdown(fd(), SHUT_RDWR);  // the following bytes could not be parsed
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

PeerLinks::PeerLinks(std::vector<UniqueFd> sockets) {
  for (auto& socket : sockets) {
    polled_.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
    links_.push_back(socket ? std::make_unique<Connection>(std::move(socket)) : nullptr);
  }
}

void PeerLinks::send(int rank, const Header& header, std::string_view payload, Deadline deadline) {
  if (const auto& link = links_[static_cast<std::size_t>(rank)]) (void)link->send(header, payload, deadline);
}

void PeerLinks::read(Deadline until, std::vector<Event>& events) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  const auto timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
  if (::poll(polled_.data(), polled_.size(), timeout_ms) <= 0) return;
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    if (polled_[rank].fd < 0 || polled_[rank].revents == 0) continue;
    messages_.clear();
    const bool is_open = links_[rank]->receive(messages_);
    for (auto& message : messages_) events.push_back({static_cast<int>(rank), std::move(message)});
    if (is_open) continue;
    polled_[rank].fd = -1;
    events.push_back({static_cast<int>(rank), std::nullopt});
  }
}

namespace {

using std::chrono::steady_clock;

constexpr auto kNap =
    std::chrono::milliseconds(50);  // of a waiting thread, so that failures of others reach it

// A thread's turn to read: releases the lock while it lives, and takes it again at its end, also after an
// exception.
class Turn {
 public:
  Turn(MeshReader::Lock& lock, bool& is_reading) : lock_(lock), is_reading_(is_reading) {
    is_reading_ = true;
    lock_.unlock();
  }
  ~Turn() {
    lock_.lock();
    is_reading_ = false;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  MeshReader::Lock& lock_;
  bool& is_reading_;
};

}  // namespace

void MeshReader::wait(Lock& lock, Deadline until) {
  const auto now = steady_clock::now();
  if (is_reading_) {
    changed_.wait_until(lock, std::min(std::max(until, now + std::chrono::microseconds(1)), now + kNap));
    return;
  }
  read(lock, std::min(until, now + kNap));
}

void MeshReader::poll(Lock& lock) {
  if (!is_reading_) read(lock, steady_clock::now());
}

// The other thread may have looked before the last of it arrived.
void MeshReader::catch_up(Lock& lock) {
  while (is_reading_) changed_.wait_for(lock, kNap);
  read(lock, steady_clock::now());
}

void MeshReader::read(Lock& lock, Deadline until) {
  std::vector<PeerLinks::Event> events;
  events.swap(events_);  // keeps its memory from one turn to the next
  {
    const Turn turn(lock, is_reading_);
    links_.read(until, events);
  }
  for (auto& event : events) deliver_(std::move(event));
  events.clear();
  events.swap(events_);
  wake();
}

}  // namespace lockstep::rendezvous
