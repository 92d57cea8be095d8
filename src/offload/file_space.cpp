#include "offload/file_space.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cerrno>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/format.h"

namespace lockstep::offload {
namespace {

namespace fs = std::filesystem;

struct Request {
  const fs::path& path;
  std::uint64_t bytes;
  const std::string& owner;
};

[[noreturn]] void refuse(const Request& wanted, const std::string& got, const std::string& hint = {}) {
  throw IoError("offload", {.what = "no room for swap file '" + wanted.path.string() + "'",
                            .expected = byte_text(wanted.bytes),
                            .got = got,
                            .where = wanted.owner,
                            .hint = hint});
}

std::string text_of(std::optional<std::uint64_t> free) {
  return free ? byte_text(*free) + " free" : "a file system that is full";
}

[[noreturn]] void refuse_full(const Request& wanted, std::optional<std::uint64_t> free) {
  refuse(wanted, text_of(free), "free some, name a directory on another disk, or use more ranks");
}

// Going beyond it would end the process with SIGXFSZ.
void check_limit(const Request& wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= wanted.bytes)
    return;
  refuse(wanted, "a limit of " + byte_text(limit.rlim_cur) + " for each file",
         "raise it: ulimit -f unlimited");
}

}  // namespace

std::optional<std::uint64_t> free_bytes(const fs::path& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0 || status.f_blocks == 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

bool is_in_memory(const fs::path& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

void check_room(const fs::path& directory, const RoomRequest& wanted) {
  const auto free = free_bytes(directory);
  if (!free || *free >= wanted.bytes) return;
  throw IoError("offload", {.what = "no room in '" + directory.string() + "' for " + wanted.what,
                            .expected = byte_text(wanted.bytes),
                            .got = text_of(free),
                            .hint = "free some, name a directory on another disk, or use more ranks"});
}

// The check comes first because a file system may take minutes to fill, and is full for all meanwhile.
void allocate_file(int fd, const fs::path& path, std::uint64_t bytes, const std::string& owner) {
  const Request wanted{path, bytes, owner};
  check_limit(wanted);
  if (const auto free = free_bytes(path); free && *free < bytes) refuse_full(wanted, free);
  int failure = EINTR;
  while (failure == EINTR) failure = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (failure == ENOSPC) refuse_full(wanted, free_bytes(path));
  if (failure != 0) refuse(wanted, detail::system_error_text(failure));
}

std::filesystem::path temporary_directory(const std::string& option) {
  std::error_code failure;
  auto directory = std::filesystem::temp_directory_path(failure);
  if (!failure) return directory;
  throw ConfigError("offload", {.what = "the directory of temporary files (TMPDIR) is not there",
                                .expected = "a directory for what lies on disk",
                                .got = failure.message(),
                                .hint = "name one by " + option});
}

void warn_of_tmpfs(const std::filesystem::path& directory, const std::string& option) {
  if (is_in_memory(directory))
    log_warning(option + " '" + directory.string() +
                "' is a tmpfs: what lies there takes memory, and saves none");
}

}  // namespace lockstep::offload
