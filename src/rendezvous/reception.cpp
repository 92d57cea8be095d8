#include "rendezvous/reception.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <lockstep/base/error.h>

namespace lockstep::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Who says nothing uses up descriptors.
constexpr auto kPatience = milliseconds(5000);
constexpr std::size_t kMostGuests = 256;

// The caller has gone meanwhile, or nobody calls.
bool is_passing(int error) {
  return error == EINTR || error == ECONNABORTED || error == EAGAIN || error == EWOULDBLOCK ||
         error == EPROTO || error == ENETUNREACH || error == EHOSTUNREACH || error == ENETDOWN;
}

void await_any(std::vector<pollfd>& polled, Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000)));
}

[[noreturn]] void refuse(std::uint32_t rank, int error) {
  throw CommError("rendezvous", {.what = "cannot accept the other ranks' connections",
                                 .got = std::strerror(error),
                                 .where = "rank " + std::to_string(rank),
                                 .hint = error == EMFILE ? "raise the limit on open files (ulimit -n)" : ""});
}

}  // namespace

bool say(int fd, const Hello& hello) {
  return ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

void Greeting::read(int fd) {
  const auto count = ::recv(fd, reinterpret_cast<char*>(&hello_) + got_, sizeof hello_ - got_, MSG_DONTWAIT);
  if (count < 0 && is_passing(errno)) return;
  if (count <= 0) {
    state_ = kStranger;
    return;
  }
  got_ += static_cast<std::size_t>(count);
  if (got_ < sizeof hello_) return;
  const bool is_rank = hello_.magic == own_.magic && hello_.token == own_.token &&
                       hello_.world_size == own_.world_size && hello_.rank < own_.world_size;
  state_ = is_rank ? kWelcome : kStranger;
}

std::vector<Reception::Caller> Reception::welcome(Deadline deadline) {
  std::vector<pollfd> polled{{.fd = listener_, .events = POLLIN, .revents = 0}};
  for (const auto& guest : guests_) {
    polled.push_back({.fd = guest.connection.get(), .events = POLLIN, .revents = 0});
  }
  await_any(polled, deadline);
  accept_all();
  for (auto& guest : guests_) guest.greeting.read(guest.connection.get());
  return take_ranks();
}

void Reception::accept_all() {
  for (;;) {
    UniqueFd caller(::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int error = errno;
    if (caller) {
      guests_.push_back({std::move(caller), Greeting(own_), steady_clock::now() + kPatience});
      if (guests_.size() > kMostGuests) guests_.pop_front();
    } else if (is_passing(error)) {
      if (error != EINTR) return;
    } else {
      refuse(own_.rank, error);
    }
  }
}

std::vector<Reception::Caller> Reception::take_ranks() {
  std::vector<Caller> callers;
  std::erase_if(guests_, [&](Guest& guest) {
    if (guest.greeting.state() == Greeting::kUnfinished) return steady_clock::now() >= guest.leaves_at;
    const auto& hello = guest.greeting.hello();
    const bool is_awaited = guest.greeting.state() == Greeting::kWelcome && hello.rank > own_.rank;
    if (is_awaited && say(guest.connection.get(), own_)) {
      callers.push_back({hello.rank, std::move(guest.connection)});
    }
    return true;
  });
  return callers;
}

}  // namespace lockstep::rendezvous
