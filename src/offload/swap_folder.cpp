#include "offload/swap_folder.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <system_error>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/folder_lock.h"
#include "base/format.h"
#include "base/system.h"

namespace lockstep::offload {
namespace {

// Removes `folder` with all in it; what cannot be removed is logged.
void remove_or_warn(const std::filesystem::path& folder);

// Removes `folder` at exit() of this process, unless remove_now() was called. Thread-safe, as all here.
void remove_at_exit(const std::filesystem::path& folder);

// Removes `folder` now if this process is the one that asked for its removal, and not a forked child of it.
void remove_now(const std::filesystem::path& folder);

namespace fs = std::filesystem;

/// Folders and the processes that own them.
class ToBeRemoved {
 public:
  void add(const fs::path& folder) {
    const std::scoped_lock lock(mutex_);
    owners_.emplace(folder, ::getpid());
  }

  /// Whether this process owns it.
  bool take(const fs::path& folder) {
    const std::scoped_lock lock(mutex_);
    const auto found = owners_.extract(folder);
    return !found.empty() && found.mapped() == ::getpid();
  }

 private:
  std::mutex mutex_;
  std::map<fs::path, pid_t> owners_;
};

// Never destroyed, since it is used at the end of the process.
ToBeRemoved& to_be_removed() {
  static auto& folders = *new ToBeRemoved;
  return folders;
}

void remove_or_warn(const fs::path& folder) {
  std::error_code failure;
  fs::remove_all(folder, failure);
  if (failure && failure != std::errc::no_such_file_or_directory)
    log_warning(folder.string() + ", which is no longer needed, cannot be removed: " + failure.message());
}

void remove_at_exit(const fs::path& folder) {
  to_be_removed().add(folder);
  detail::at_end_of_process([folder] { remove_now(folder); });
}

void remove_now(const fs::path& folder) {
  if (to_be_removed().take(folder)) remove_or_warn(folder);
}

constexpr int kRounds = 100;  // attempts in which others may take a name, or remove a folder without a lock
constexpr std::string_view kPrefix = "lockstep-swap_";

std::string suffix_of_host() { return "@" + detail::host_name(); }

// The name of a job as a part of a file name.
std::string as_file_name(std::string text) {
  const auto is_plain = [](unsigned char letter) {
    return std::isalnum(letter) || letter == '.' || letter == '-';
  };
  std::replace_if(
      text.begin(), text.end(), [&](char letter) { return !is_plain(letter); }, '_');
  return text.substr(0, 64);
}

fs::path new_name(const SwapFolderOptions& options) {
  std::array<char, 9> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", std::random_device()());
  const auto job = options.job.empty() ? std::to_string(::getpid()) : as_file_name(options.job);
  return options.directory / (std::string(kPrefix) + job + "_rank" + std::to_string(options.rank) + "_" +
                              digits.data() + suffix_of_host());
}

[[noreturn]] void refuse(const SwapFolderOptions& options, const std::string& reason) {
  throw ConfigError("offload", {.what = options.option + " '" + options.directory.string() + "'",
                                .expected = "a directory that this process can write to",
                                .got = reason,
                                .where = "rank " + std::to_string(options.rank),
                                .hint = "create it on every node, or name another one"});
}

void check_directory(const SwapFolderOptions& options) {
  if (options.directory.empty()) refuse(options, "an empty path");
  std::error_code failure;
  const auto status = fs::status(options.directory, failure);
  if (status.type() == fs::file_type::not_found) refuse(options, "nothing of that name");
  if (!fs::exists(status)) refuse(options, failure.message());
  if (!fs::is_directory(status)) refuse(options, "something that is no directory");
}

bool is_of_this_host(const std::string& name) {
  return name.starts_with(kPrefix) && name.ends_with(suffix_of_host());
}

void remove_leftovers(const fs::path& directory) {
  std::error_code failure;
  for (fs::directory_iterator at(directory, failure), end; !failure && at != end; at.increment(failure)) {
    if (!is_of_this_host(at->path().filename().string())) continue;
    const auto lock = detail::lock_alone(at->path());
    if (!lock) continue;
    log_info("removing " + at->path().string() + ", left by a process that is no more");
    remove_or_warn(at->path());
  }
}

}  // namespace

struct SwapFolder::Held {
  explicit Held(const SwapFolderOptions& wanted) : options(wanted) {
    for (int round = 0; round < kRounds && !lock; ++round) {
      path = new_name(options);
      errno = 0;
      lock = detail::make_locked_folder(path);
      if (!lock && errno != 0 && errno != EEXIST && errno != EWOULDBLOCK && errno != ENOENT) break;
    }
    if (!lock) refuse(options, detail::system_error_text(errno));
    remove_at_exit(path);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { remove_now(path); }

  SwapFolderOptions options;
  fs::path path;
  UniqueFd lock;
};

SwapFolder::SwapFolder(const SwapFolderOptions& options) {
  check_directory(options);
  auto absolute = options;
  absolute.directory = fs::absolute(options.directory);
  remove_leftovers(absolute.directory);
  held_ = std::make_unique<Held>(absolute);
}

SwapFolder::SwapFolder(SwapFolder&&) noexcept = default;
SwapFolder& SwapFolder::operator=(SwapFolder&&) noexcept = default;

SwapFolder::~SwapFolder() = default;

const fs::path& SwapFolder::path() const { return held_->path; }
const SwapFolderOptions& SwapFolder::options() const { return held_->options; }

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

// Checks the limit of file sizes, beyond which SIGXFSZ would end the process.
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

// Checks the free space first: filling a file system may take minutes, in which it is full for everybody.
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
