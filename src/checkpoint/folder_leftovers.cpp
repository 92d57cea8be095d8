#include "checkpoint/folder_leftovers.h"

#include <lockstep/base/log.h>

#include "checkpoint/folder_lock.h"
#include "formats/checkpoint_siblings.h"

namespace lockstep::detail {

namespace fs = std::filesystem;

namespace {
constexpr int kRounds = 100;  // in which somebody else removes the same
}  // namespace

void remove_or_warn(const fs::path& folder) {
  std::error_code failure;
  for (int round = 0; round < kRounds; ++round) {
    fs::remove_all(folder, failure);
    if (failure != std::errc::no_such_file_or_directory) break;
  }
  if (failure && failure != std::errc::no_such_file_or_directory)
    log_warning(folder.string() + ", which is no longer needed, cannot be removed: " + failure.message());
}

void remove_drafts(const fs::path& checkpoint) {
  for (const auto& draft : siblings(checkpoint, kDraft)) {
    if (!is_of_this_host(draft)) continue;
    if (const auto lock = lock_for_removal(draft)) remove_or_warn(draft);
  }
}

void restore_older(const fs::path& checkpoint) {
  const auto older = newest_older(checkpoint);
  std::error_code ignored;
  if (older.empty() || !is_of_this_host(older) || fs::exists(checkpoint, ignored)) return;
  if (const auto lock = lock_for_removal(older)) fs::rename(older, checkpoint, ignored);
}

}  // namespace lockstep::detail
