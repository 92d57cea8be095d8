#include "comm/event_loop.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include <lockstep/base/unique_fd.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

std::string contents(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; file && (got = ::read(file.get(), buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  return text;
}

std::vector<int> open_descriptors() {
  std::vector<int> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", failure))
    found.push_back(std::stoi(entry.path().filename()));
  return found;
}

// Descriptors of others are inspected by name only: a call that uses them would race with a close.
std::string kind_of(int fd) {
  std::error_code failure;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), failure).string();
}

bool is_epoll(int fd) { return kind_of(fd) == "anon_inode:[eventpoll]"; }

bool is_pipe(int fd) { return kind_of(fd).starts_with("pipe:"); }

// Empty unless it is a socket that listens in a network. The unused bytes of an IPv4 address are left out.
std::string listening_address(int fd) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) return {};
  sockaddr_storage address{};
  length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return {};
  const auto used = address.ss_family == AF_INET ? offsetof(sockaddr_in, sin_zero) : sizeof(sockaddr_in6);
  return {reinterpret_cast<const char*>(&address), used};
}

int port_of(std::string_view address) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  in_port_t port = 0;
  std::memcpy(&port, address.data() + offsetof(sockaddr_in, sin_port), sizeof port);
  return ntohs(port);
}

// 0 if the descriptor is not open.
ino_t inode_of(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 ? file.st_ino : 0;
}

bool has_inode(int fd, ino_t inode) { return inode_of(fd) == inode; }

bool is_connected(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

}  // namespace

std::vector<EventLoop> EventLoop::find(const std::function<bool(std::string_view)>& is_wanted) {
  std::vector<EventLoop> found;
  for (const int fd : open_descriptors()) {
    if (!is_epoll(fd)) continue;
    const EventLoop loop(fd);
    for (const auto& watched : loop.watched()) {
      const auto address = listening_address(watched.fd);
      if (address.empty() || !is_wanted(address)) continue;
      found.push_back(loop);
      break;
    }
  }
  return found;
}

std::vector<EventLoop> EventLoop::serving(int port) {
  return find([port](std::string_view address) { return port_of(address) == port; });
}

// "tfd: 5 events: 19 data: 7 pos:0 ino:1c3 sdev:8", a line for each; the inode in hexadecimal.
std::vector<EventLoop::Watched> EventLoop::watched() const {
  std::vector<Watched> all;
  const auto text = contents("/proc/self/fdinfo/" + std::to_string(epoll_));
  for (auto at = text.find("tfd:"); at != std::string::npos; at = text.find("tfd:", at + 1)) {
    int fd = -1;
    unsigned long inode = 0;
    if (std::sscanf(text.c_str() + at, "tfd: %d events: %*x data: %*x pos:%*d ino:%lx", &fd, &inode) == 2)
      all.push_back({.fd = fd, .inode = inode});
  }
  return all;
}

// Loops wake themselves by a pipe, of which they watch one end. Both have the same inode.
std::vector<EventLoop::Watched> EventLoop::owned() const {
  auto all = watched();
  all.push_back({.fd = epoll_, .inode = inode_of(epoll_)});
  for (const auto& [end, inode] : watched()) {
    if (!is_pipe(end)) continue;
    for (const int fd : open_descriptors()) {
      if (fd != end && is_pipe(fd) && has_inode(fd, inode)) all.push_back({.fd = fd, .inode = inode});
    }
  }
  return all;
}

void EventLoop::close_on_exec() const {
  for (const auto& [fd, inode] : owned()) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void EventLoop::shut_down() const {
  for (const auto& [fd, inode] : watched()) {
    // The loop may close it at any time: a copy stays what it is between the check and the shutdown.
    const UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy && has_inode(copy.get(), inode) && is_connected(copy.get())) ::shutdown(copy.get(), SHUT_RDWR);
  }
}

void EventLoop::close_copies() const {
  for (const auto& [fd, inode] : owned()) {
    if (has_inode(fd, inode)) ::close(fd);
  }
}

}  // namespace lockstep::detail
