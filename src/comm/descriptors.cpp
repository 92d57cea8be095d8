#include "comm/descriptors.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

namespace lockstep::detail {
namespace {

std::optional<Descriptor> look_at(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return std::nullopt;
  const bool is_nameless = (file.st_mode & S_IFMT) == 0;
  if (!S_ISSOCK(file.st_mode) && !S_ISFIFO(file.st_mode) && !is_nameless) return std::nullopt;
  return Descriptor{.fd = fd, .device = file.st_dev, .inode = file.st_ino};
}

std::vector<Descriptor> open_descriptors() {
  std::vector<Descriptor> found;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", failure)) {
    if (const auto descriptor = look_at(std::stoi(entry.path().filename()))) found.push_back(*descriptor);
  }
  std::ranges::sort(found);
  return found;
}

bool is_connected(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

}  // namespace

DescriptorWatch::DescriptorWatch() : before_(open_descriptors()) {}

std::vector<Descriptor> DescriptorWatch::keep_private() const {
  std::vector<Descriptor> appeared;
  std::ranges::set_difference(open_descriptors(), before_, std::back_inserter(appeared));
  for (const auto& descriptor : appeared) ::fcntl(descriptor.fd, F_SETFD, FD_CLOEXEC);
  return appeared;
}

void shut_down(std::span<const Descriptor> descriptors) {
  for (const auto& descriptor : descriptors) {
    // Its owner may close it at any time: a copy cannot become something else between look and act.
    const int copy = ::fcntl(descriptor.fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) continue;
    const auto found = look_at(copy);
    const bool is_same =
        found && found->device == descriptor.device && found->inode == descriptor.inode && is_connected(copy);
    if (is_same) ::shutdown(copy, SHUT_RDWR);
    ::close(copy);
  }
}

}  // namespace lockstep::detail
