#include "launch/outlet.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

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

}  // namespace lockstep::launch
