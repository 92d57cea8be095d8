#include "launch/outlet.h"

#include <limits.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace lockstep::launch {
namespace {

bool is_ready(int fd, int timeout_ms) {
  pollfd watched{.fd = fd, .events = POLLOUT, .revents = 0};
  return ::poll(&watched, 1, timeout_ms) > 0;
}

}  // namespace

void Outlet::add_to(std::vector<pollfd>& watched) const {
  if (!queue_.empty()) watched.push_back({.fd = fd_, .events = POLLOUT, .revents = 0});
}

// A pipe that is ready takes PIPE_BUF bytes without blocking.
void Outlet::flush() {
  std::size_t written = 0;
  while (written < queue_.size() && is_ready(fd_, 0)) {
    const auto size = std::min<std::size_t>(queue_.size() - written, PIPE_BUF);
    const auto count = ::write(fd_, queue_.data() + written, size);
    if (count > 0) written += static_cast<std::size_t>(count);
    if (count >= 0 || errno == EINTR) continue;
    if (errno == EAGAIN) break;
    failure_ = errno;
    written = queue_.size();
  }
  queue_.erase(0, written);
}

void Outlet::flush_within(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  flush();
  while (!queue_.empty() && std::chrono::steady_clock::now() < end) {
    is_ready(fd_, 10);
    flush();
  }
}

namespace {

constexpr std::size_t kLongestLine = std::size_t{16} << 20;
constexpr std::size_t kMostHeld = std::size_t{1} << 20;
constexpr itimerspec kPatience{.it_interval = {}, .it_value = {.tv_sec = 1, .tv_nsec = 0}};

bool is_ended(std::string_view part) { return part.ends_with('\n') || part.ends_with('\r'); }

}  // namespace

LineOutlet::LineOutlet(int fd)
    : out_(fd), timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!timer_) throw_errno("cannot make a timer for the output of ranks");
}

void LineOutlet::add(Writer writer, std::string_view part, bool ends) {
  if (!is_free_for(writer)) {
    held_ += part;
    if (!is_ended(part)) held_ += '\n';
    return;
  }
  put(part);
  if (ends) return release();
  owner_ = writer;
  length_ += part.size();
  if (length_ > kLongestLine) return cut();
  start_timer();
}

void LineOutlet::say(std::string_view line) {
  cut();
  put(line);
  out_.flush();
}

void LineOutlet::put(std::string_view part) {
  if (part.empty()) return;
  if (lacks_end_ && owner_ == nullptr) out_.add("\n");
  out_.add(part);
  lacks_end_ = !is_ended(part);
}

bool LineOutlet::is_full_for(Writer writer) const {
  return out_.is_full() || (!is_free_for(writer) && held_.size() > kMostHeld);
}

void LineOutlet::add_to(std::vector<pollfd>& watched) const {
  out_.add_to(watched);
  if (owner_ != nullptr && !held_.empty())
    watched.push_back({.fd = timer_.get(), .events = POLLIN, .revents = 0});
}

void LineOutlet::look() {
  std::uint64_t ticks = 0;
  const bool others_wait = owner_ != nullptr && !held_.empty();
  if (others_wait && ::read(timer_.get(), &ticks, sizeof ticks) > 0) cut();
  out_.flush();
}

void LineOutlet::cut() {
  if (owner_ == nullptr) return;
  put("\n");
  release();
}

void LineOutlet::release() {
  owner_ = nullptr;
  length_ = 0;
  put(std::exchange(held_, {}));
}

void LineOutlet::start_timer() { ::timerfd_settime(timer_.get(), 0, &kPatience, nullptr); }

}  // namespace lockstep::launch
