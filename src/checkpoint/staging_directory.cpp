#include "checkpoint/staging_directory.h"

#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/folder_lock.h"
#include "formats/checkpoint_files.h"
#include "formats/checkpoint_folders.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 100;  // attempts in which other processes may take a name first

[[noreturn]] void refuse(const fs::path& folder, const std::string& what, int error_number) {
  throw IoError("checkpoint", {.what = folder.string() + " cannot be " + what,
                               .got = std::generic_category().message(error_number)});
}

fs::path target_of(const fs::path& folder) {
  std::error_code failure;
  const auto path = fs::absolute(without_slash(folder), failure);
  if (failure) refuse(folder, "found", failure.value());
  return path;
}

// What a copy of a checkpoint leaves that was broken off: files of checkpoints, one of which nobody else
// writes.
bool is_rest_of_checkpoint(const fs::path& folder) {
  bool is_ours = false;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
    const auto name = at->path().filename().string();
    const bool is_own =
        name == kManifestChecksumName || (name.starts_with("rank_") && name.ends_with(".safetensors"));
    const bool is_known =
        is_own || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
    if (!is_known || !at->is_regular_file(failure)) return false;
    is_ours = is_ours || is_own;
  }
  return is_ours && !failure;
}

// The replaced folder is removed at the end: that may only be a checkpoint.
void check_replaceable(const fs::path& there, const fs::path& target) {
  if (there.empty()) return;
  std::error_code failure;
  const auto status = fs::symlink_status(there, failure);
  if (status.type() == fs::file_type::none) refuse(target, "looked at", failure.value());
  if (!fs::exists(status)) return;
  const bool is_link = fs::is_symlink(status);  // it leads to a checkpoint, or to where one was
  if (is_link && !fs::exists(there, failure) && !failure) return;
  const bool is_empty = fs::is_directory(status) && fs::is_empty(there, failure);
  if (is_empty || ((is_link || fs::is_directory(status)) && fs::exists(there / kManifestName, failure)))
    return;
  if (fs::is_directory(status) && is_rest_of_checkpoint(there)) return;
  throw IoError("checkpoint", {.what = "checkpoint " + target.string() + " cannot be written",
                               .expected = "a checkpoint, an empty folder, or nothing of that name",
                               .got = fs::is_directory(status) ? "a folder with other content" : "a file"});
}

// ENOTDIR: a link has the name.
bool was_taken(int error_number) {
  return error_number == ENOTEMPTY || error_number == EEXIST || error_number == ENOTDIR;
}

// Exchanges the names of two folders in one step.
bool exchange(const fs::path& one, const fs::path& other) {
  return renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

void check_may_be_saved_to(const fs::path& target) { check_replaceable(target, target); }

StagingDirectory::StagingDirectory(const fs::path& target) : target_(target_of(target)) {
  check_replaceable(target_, target_);
  create_folders(target_.parent_path());
  restore_older(target_);
  remove_drafts(target_);
  for (int round = 0; round < kRounds && !lock_; ++round) {
    path_ = new_sibling(target_, kDraft);
    errno = 0;
    lock_ = make_locked_folder(path_);
    if (!lock_ && errno != 0 && errno != EEXIST && errno != EWOULDBLOCK && errno != ENOENT) break;
  }
  if (!lock_) refuse(target_, "created", errno);
}

StagingDirectory::~StagingDirectory() {
  if (!path_.empty()) remove_or_warn(path_);
}

void StagingDirectory::commit() {
  sync_folder(path_);
  const auto obsolete = siblings(target_, kOlder);  // removed when this one has its name; later ones are not
  const auto replaced = put_in_place();
  try {
    check_replaceable(replaced, target_);  // another process may have created it since
    sync_folder(target_.parent_path());
  } catch (const IoError& error) {
    put_back(replaced);  // the previous checkpoint is there again when saving fails
    if (!is_locked_one(lock_, target_)) throw;
    path_.clear();  // so that the destructor removes nothing
    return log_warning(target_.string() + " is complete, but may not survive a power cut: " + error.what());
  }
  if (!replaced.empty()) remove_or_warn(replaced);
  for (const auto& folder : obsolete) remove_or_warn(folder);
}

// Returns the new place of the folder that had the name; empty if there was none. Concurrent writers take
// turns.
fs::path StagingDirectory::put_in_place() {
  for (int round = 0; round < kRounds; ++round) {
    replaced_lock_ = lock_for_use(target_);
    if (rename(path_.c_str(), target_.c_str()) == 0) return {};
    if (!was_taken(errno)) refuse(target_, "renamed to its place", errno);
    if (exchange(path_, target_)) return locked_in_place(path_);
    const bool cannot_exchange = errno == EINVAL || errno == ENOSYS;
    if (!cannot_exchange && errno != ENOENT) refuse(target_, "renamed to its place", errno);
    if (!cannot_exchange) continue;
    if (const auto aside = move_aside_and_follow(); !aside.empty()) return locked_in_place(aside);
  }
  refuse(target_, "renamed to its place", EBUSY);
}

// Locks `replaced` against removal and returns it: between lock and rename another folder may have got the
// name.
fs::path StagingDirectory::locked_in_place(const fs::path& replaced) {
  if (!is_locked_one(replaced_lock_, replaced)) replaced_lock_ = lock_for_use(replaced);
  return replaced;
}

// Two renames for file systems that cannot exchange names. Empty when another process was faster.
fs::path StagingDirectory::move_aside_and_follow() const {
  const auto aside = new_sibling(target_, kOlder);
  if (rename(target_.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return {};
    refuse(target_, "moved aside", errno);
  }
  if (rename(path_.c_str(), target_.c_str()) == 0) return aside;
  const int failure = errno;
  (void)rename(aside.c_str(), target_.c_str());
  if (!was_taken(failure)) refuse(target_, "renamed to its place", failure);
  return {};
}

void StagingDirectory::put_back(const fs::path& replaced) {
  const bool is_whole = replaced.empty() || is_locked_one(replaced_lock_, replaced);
  if (!is_whole || !is_locked_one(lock_, target_))
    return;  // the folder of another process has the name by now
  if (replaced == path_) {
    (void)exchange(path_, target_);
  } else if (rename(target_.c_str(), path_.c_str()) == 0 && !replaced.empty()) {
    (void)rename(replaced.c_str(), target_.c_str());
  }
}

namespace {

constexpr int kRemovals = 100;                   // attempts in which another process removes the same
constexpr auto kStill = std::chrono::hours(24);  // without a change: the writer has ended

// The time of the last change of `folder` or of something in it; in the future where it cannot be found out.
fs::file_time_type last_change(const fs::path& folder) {
  std::error_code failure;
  auto latest = fs::last_write_time(folder, failure);
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure))
    latest = std::max(latest, at->last_write_time(failure));
  return failure ? fs::file_time_type::max() : latest;
}

// The lock of a writer on another machine is invisible here. Should that writer still run, it finds its draft
// gone and fails, and the checkpoint is untouched: for this the draft loses its name first, in one step.
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
    } else if (const auto lock = lock_alone(draft)) {
      remove_or_warn(draft);
    }
  }
}

void restore_older(const fs::path& checkpoint) {
  const auto older = newest_older(checkpoint);
  std::error_code ignored;
  if (older.empty() || !is_of_this_host(older) || fs::exists(checkpoint, ignored)) return;
  if (const auto lock = lock_alone(older)) fs::rename(older, checkpoint, ignored);
}

void remove_checkpoint(const fs::path& folder) {
  require_name(folder);
  std::error_code failure;
  if (fs::is_symlink(folder, failure) || !fs::exists(folder / kManifestName, failure)) return;
  fs::remove(folder / kManifestName, failure);
  remove_or_warn(folder);
}

void link_checkpoint(const fs::path& link, const fs::path& target) {
  auto draft = link;
  draft += ".link";
  std::error_code failure;
  fs::remove(draft, failure);
  fs::create_directory_symlink(fs::relative(target, link.parent_path(), failure), draft, failure);
  if (!failure && !fs::is_symlink(link)) remove_checkpoint(link);
  if (!failure) fs::rename(draft, link, failure);
  if (!failure) return;
  throw IoError("checkpoint",
                {.what = "link " + link.string() + " to " + target.string() + " cannot be made",
                 .got = failure.message(),
                 .hint = "save_last true saves a checkpoint of its own, which every file system can store"});
}

}  // namespace lockstep::detail
