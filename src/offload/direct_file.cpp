#include "offload/direct_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "offload/aligned_buffer.h"

namespace lockstep::offload {
namespace {

// Since Linux 6.6 it takes O_DIRECT, which changes nothing there.
bool is_in_memory(int fd) {
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 && status.f_type == TMPFS_MAGIC;
}

}  // namespace

// Some file systems refuse the flag, others only transfers: one is tried.
UniqueFd open_direct(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  if (!fd || is_in_memory(fd.get())) return {};
  const AlignedBuffer buffer(kAlignment);
  const auto bytes = ::pread(fd.get(), buffer.bytes().data(), kAlignment, 0);
  return bytes == static_cast<ssize_t>(kAlignment) ? std::move(fd) : UniqueFd();
}

}  // namespace lockstep::offload
