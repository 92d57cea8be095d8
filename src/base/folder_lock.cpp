#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::detail {
namespace {

UniqueFd opened(const std::filesystem::path& folder) {
  return UniqueFd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace

UniqueFd make_locked_folder(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0777) != 0) return {};
  auto lock = lock_for_use(folder);
  if (!lock) ::rmdir(folder.c_str());
  return lock && is_locked_one(lock, folder) ? std::move(lock) : UniqueFd();
}

// On a file system without locks this succeeds, and nobody can lock for removal.
UniqueFd lock_for_use(const std::filesystem::path& folder) {
  auto fd = opened(folder);
  if (fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) fd.reset();
  return fd;
}

UniqueFd lock_alone(const std::filesystem::path& folder) {
  auto fd = opened(folder);
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

bool is_locked_one(const UniqueFd& lock, const std::filesystem::path& folder) {
  struct stat locked {
  }, there{};
  return ::fstat(lock.get(), &locked) == 0 && ::lstat(folder.c_str(), &there) == 0 &&
         locked.st_ino == there.st_ino && locked.st_dev == there.st_dev;
}

}  // namespace lockstep::detail
