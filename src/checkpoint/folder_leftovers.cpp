#include "checkpoint/folder_leftovers.h"

#include <algorithm>
#include <chrono>

#include <lockstep/base/log.h>

#include "base/folder_lock.h"
#include "formats/checkpoint_siblings.h"

namespace lockstep::detail {

namespace fs = std::filesystem;

namespace {

constexpr int kRemovals = 100;                   // in which somebody else removes the same
constexpr auto kStill = std::chrono::hours(24);  // without a change: nobody writes any more

// When `folder` or something in it was last changed; the future where that cannot be found out.
fs::file_time_type last_change(const fs::path& folder) {
  std::error_code failure;
  auto latest = fs::last_write_time(folder, failure);
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure))
    latest = std::max(latest, at->last_write_time(failure));
  return failure ? fs::file_time_type::max() : latest;
}

// The lock of a writer on another machine cannot be seen. Should it live after all, it finds its draft gone
// and fails, with the checkpoint untouched; that is why the name goes first, in one step.
void remove_if_still(const fs::path& draft, const fs::path& checkpoint) {
  if (last_change(draft) > fs::file_time_type::clock::now() - kStill) return;
  const auto own = new_sibling(checkpoint, kDraft);
  std::error_code failure;
  fs::rename(draft, own, failure);
  if (!failure) remove_or_warn(own);
}

}  // namespace

void remove_or_warn(const fs::path& folder) {
  std::error_code failure;
  for (int round = 0; round < kRemovals; ++round) {
    fs::remove_all(folder, failure);
    if (failure != std::errc::no_such_file_or_directory) break;
  }
  if (failure && failure != std::errc::no_such_file_or_directory)
    log_warning(folder.string() + ", which is no longer needed, cannot be removed: " + failure.message());
}

void remove_drafts(const fs::path& checkpoint) {
  for (const auto& draft : siblings(checkpoint, kDraft)) {
    if (!is_of_this_host(draft)) {
      remove_if_still(draft, checkpoint);
    } else if (const auto lock = lock_for_removal(draft)) {
      remove_or_warn(draft);
    }
  }
}

void restore_older(const fs::path& checkpoint) {
  const auto older = newest_older(checkpoint);
  std::error_code ignored;
  if (older.empty() || !is_of_this_host(older) || fs::exists(checkpoint, ignored)) return;
  if (const auto lock = lock_for_removal(older)) fs::rename(older, checkpoint, ignored);
}

}  // namespace lockstep::detail
