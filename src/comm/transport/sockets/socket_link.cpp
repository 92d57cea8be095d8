#include "comm/transport/sockets/socket_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "base/sockets.h"

namespace lockstep::detail {
namespace {

constexpr std::uint32_t kData = 0x4c'53'01, kNotice = 0x4c'53'02;  // no other program's bytes
constexpr std::size_t kTurn = 1 << 20;  // bytes that are read or written before other links have a turn

void count(SocketCall* call, std::size_t bytes) {
  if (call) call->moved += bytes;
}

void complete(SocketCall* call, int number = -1) {
  if (!call) return;
  --call->pending;
  ++call->moved;
  if (number >= 0) call->arrived.push_back(number);
}

// errors.cpp makes a lost peer of it, whatever the system says.
std::string lost_because(int error, const std::string& peer) {
  return "Socket closed (" + system_error_text(error) + "): " + peer;
}

// It stays pending: its memory may be in use elsewhere.
void fail(SocketCall* call, const std::string& reason) {
  if (call && call->failure.empty()) call->failure = reason;
}

void fail_all(std::deque<SocketSend>& sends, const std::string& reason) {
  for (const auto& send : sends) fail(send.call, reason);
}

template <class Transfers>
void drop_of(Transfers& transfers, const SocketCall& call) {
  std::erase_if(transfers, [&](const auto& each) { return each.call == &call; });
}

template <class Transfers>
bool any_of(const Transfers& transfers, const SocketCall& call) {
  return std::ranges::any_of(transfers, [&](const auto& each) { return each.call == &call; });
}

}  // namespace

void SocketLink::post(const SocketSend& send) {
  if (send.call) ++send.call->pending;
  if (!send_failure_.empty()) return fail(send.call, send_failure_);
  if (!send.awaits_notice) return enqueue(send);
  unposted_[send.stream].push_back(send);
  note_notice(send.stream);
}

void SocketLink::enqueue(const SocketSend& send) { (send.is_urgent ? urgent_ : ordinary_).push_back(send); }

void SocketLink::post(std::uint32_t stream, const SocketReceive& receive) {
  ++receive.call->pending;
  if (!receive_failure_.empty()) return fail(receive.call, receive_failure_);
  posted_[stream].push_back(receive);
  if (receive.gives_notice)
    enqueue({.stream = stream, .bytes = receive.bytes, .is_urgent = true, .is_notice = true});
  if (is_parked_ && next_.stream == stream) begin_to_receive();
}

short SocketLink::events() const {
  short events = 0;
  if (receive_failure_.empty() && !is_parked_) events |= POLLIN;
  if (send_failure_.empty() && (sending_ || !urgent_.empty() || !ordinary_.empty())) events |= POLLOUT;
  return events;
}

bool SocketLink::begin_to_send() {
  if (sending_) return true;
  auto& queue = urgent_.empty() ? ordinary_ : urgent_;
  if (queue.empty()) return false;
  const auto& next = queue.front();
  sending_ = Sending{
      .send = next,
      .header = {.kind = next.is_notice ? kNotice : kData, .stream = next.stream, .bytes = next.bytes}};
  queue.pop_front();
  return true;
}

void SocketLink::write() {
  for (std::size_t written = 0; written < kTurn && send_failure_.empty() && begin_to_send();) {
    auto& [send, header, done] = *sending_;
    const auto payload = send.is_notice ? 0 : send.bytes;
    std::array<iovec, 2> parts{};
    std::size_t count_of_parts = 0;
    if (done < sizeof header)
      parts[count_of_parts++] = {reinterpret_cast<std::byte*>(&header) + done, sizeof header - done};
    const auto begin = done < sizeof header ? 0 : done - sizeof header;
    if (payload > begin)
      parts[count_of_parts++] = {const_cast<std::byte*>(send.data) + begin, payload - begin};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count_of_parts;
    const auto sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && is_transient(errno)) return;
    if (sent < 0) return end_sending(lost_because(errno, peer_));
    done += static_cast<std::size_t>(sent);
    written += static_cast<std::size_t>(sent);
    count(send.call, static_cast<std::size_t>(sent));
    if (done < sizeof header + payload) return;  // the system takes no more
    complete(send.call);
    sending_.reset();
  }
}

// The header of the next frame comes with the end of the one before: a frame costs one call.
void SocketLink::read() {
  for (std::size_t read = 0; read < kTurn && receive_failure_.empty() && !is_parked_;) {
    std::array<iovec, 2> parts{};
    std::size_t count_of_parts = 0;
    if (receiving_)
      parts[count_of_parts++] = {receiving_->receive.place + receiving_->done,
                                 receiving_->receive.bytes - receiving_->done};
    parts[count_of_parts++] = {reinterpret_cast<std::byte*>(&next_) + next_bytes_,
                               sizeof next_ - next_bytes_};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count_of_parts;
    const auto wanted = parts[0].iov_len + parts[1].iov_len;
    const auto got = ::recvmsg(fd(), &message, MSG_DONTWAIT);
    if (got < 0 && is_transient(errno)) return;
    if (got <= 0)
      return end_receiving(got == 0 ? "Connection closed by peer: " + peer_ : lost_because(errno, peer_));
    read += static_cast<std::size_t>(got);
    const bool is_drained = static_cast<std::size_t>(got) < wanted;
    take(static_cast<std::size_t>(got));
    if (is_drained) return;
  }
}

void SocketLink::take(std::size_t got) {
  if (receiving_) {
    auto& [receive, done] = *receiving_;
    const auto payload = std::min(got, receive.bytes - done);
    done += payload;
    got -= payload;
    count(receive.call, payload);
    if (done < receive.bytes) return;
    complete(receive.call, receive.number);
    receiving_.reset();
  }
  next_bytes_ += got;
  if (next_bytes_ == sizeof next_) begin_frame();
}

void SocketLink::begin_frame() {
  if (next_.kind == kNotice) {
    notices_[next_.stream].push_back(next_.bytes);
    next_bytes_ = 0;
    return note_notice(next_.stream);
  }
  if (next_.kind != kData) return end(peer_ + " sent what is no frame of this program");
  begin_to_receive();
}

void SocketLink::begin_to_receive() {
  const auto found = posted_.find(next_.stream);
  is_parked_ = found == posted_.end() || found->second.empty();
  if (is_parked_) return;
  const auto& receive = found->second.front();
  if (receive.bytes != next_.bytes)
    return end(peer_ + " sent " + std::to_string(next_.bytes) + " bytes where " +
               std::to_string(receive.bytes) + " bytes were expected");
  receiving_ = Receiving{.receive = receive};
  found->second.pop_front();
  if (found->second.empty()) posted_.erase(found);
  next_bytes_ = 0;
}

// Each notice is for one transfer of its stream, in their order. Streams without any are forgotten: there may
// be one for each tag of a message.
void SocketLink::note_notice(std::uint32_t stream) {
  const auto notices = notices_.find(stream);
  const auto waiting = unposted_.find(stream);
  if (notices == notices_.end() || waiting == unposted_.end()) return;
  while (!notices->second.empty() && !waiting->second.empty()) {
    const auto& send = waiting->second.front();
    if (notices->second.front() != send.bytes)
      return end(peer_ + " expects " + std::to_string(notices->second.front()) + " bytes where " +
                 std::to_string(send.bytes) + " bytes are sent");
    enqueue(send);
    waiting->second.pop_front();
    notices->second.pop_front();
  }
  if (notices->second.empty()) notices_.erase(notices);
  if (waiting->second.empty()) unposted_.erase(waiting);
}

bool SocketLink::has(const SocketCall& call) const {
  if ((sending_ && sending_->send.call == &call) || (receiving_ && receiving_->receive.call == &call))
    return true;
  if (any_of(urgent_, call) || any_of(ordinary_, call)) return true;
  const auto in_a_stream = [&](const auto& streams) {
    return std::ranges::any_of(streams, [&](const auto& each) { return any_of(each.second, call); });
  };
  return in_a_stream(unposted_) || in_a_stream(posted_);
}

void SocketLink::drop(SocketCall& call) {
  const bool is_cut =
      (sending_ && sending_->send.call == &call) || (receiving_ && receiving_->receive.call == &call);
  if (is_cut) end("Socket closed: a transfer was given up: " + peer_);
  if (sending_ && sending_->send.call == &call) sending_.reset();
  if (receiving_ && receiving_->receive.call == &call) receiving_.reset();
  drop_of(urgent_, call);
  drop_of(ordinary_, call);
  for (auto& [stream, sends] : unposted_) drop_of(sends, call);
  for (auto& [stream, receives] : posted_) drop_of(receives, call);
}

void SocketLink::end(const std::string& reason) {
  end_sending(reason);
  end_receiving(reason);
  ::shutdown(fd(), SHUT_RDWR);
}

// What has arrived before that may still be received.
void SocketLink::end_sending(const std::string& reason) {
  if (!send_failure_.empty()) return;
  send_failure_ = reason;
  if (sending_) fail(sending_->send.call, send_failure_);
  fail_all(urgent_, send_failure_);
  fail_all(ordinary_, send_failure_);
  for (auto& [stream, sends] : unposted_) fail_all(sends, send_failure_);
}

// Who has closed its end reads nothing any more.
void SocketLink::end_receiving(const std::string& reason) {
  if (!receive_failure_.empty()) return;
  receive_failure_ = reason;
  if (receiving_) fail(receiving_->receive.call, receive_failure_);
  for (auto& [stream, receives] : posted_)
    for (const auto& receive : receives) fail(receive.call, receive_failure_);
  end_sending(reason);
}

}  // namespace lockstep::detail
