#include "offload/removed_at_exit.h"

#include <sys/types.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <system_error>

#include <lockstep/base/log.h>

#include "base/end_of_process.h"

namespace lockstep::offload {
namespace {

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

}  // namespace

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

}  // namespace lockstep::offload
