#include "offload/swap_folder.h"

#include <sys/types.h>
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

// It outlives the end of the process, which comes by various ways.
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

constexpr int kRounds = 100;  // in which others may take a name, or remove what has no lock yet
constexpr std::string_view kPrefix = "lockstep-swap_";

std::string suffix_of_host() { return "@" + detail::host_name(); }

// A job's name may be anything.
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
    const auto lock = detail::lock_for_removal(at->path());
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

}  // namespace lockstep::offload
