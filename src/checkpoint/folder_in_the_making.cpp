#include "checkpoint/folder_in_the_making.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/folder_lock.h"
#include "checkpoint/folder_leftovers.h"
#include "formats/checkpoint_manifest.h"
#include "formats/checkpoint_siblings.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 100;  // in which others may take a name first

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

// What is replaced is removed in the end: that may only be a checkpoint.
void check_may_be_replaced(const fs::path& there, const fs::path& target) {
  if (there.empty()) return;
  std::error_code failure;
  const auto status = fs::symlink_status(there, failure);
  if (status.type() == fs::file_type::none) refuse(target, "looked at", failure.value());
  if (!fs::exists(status)) return;
  const bool is_link = fs::is_symlink(status);  // to a checkpoint, or to where one was
  if (is_link && !fs::exists(there, failure) && !failure) return;
  const bool is_empty = fs::is_directory(status) && fs::is_empty(there, failure);
  if (is_empty || ((is_link || fs::is_directory(status)) && fs::exists(there / kManifestName, failure)))
    return;
  throw IoError("checkpoint", {.what = "checkpoint " + target.string() + " cannot be written",
                               .expected = "a checkpoint, an empty folder, or nothing of that name",
                               .got = "something else"});
}

// ENOTDIR: by a link.
bool was_taken(int error_number) {
  return error_number == ENOTEMPTY || error_number == EEXIST || error_number == ENOTDIR;
}

// Lets two folders trade places in one step.
bool exchange(const fs::path& one, const fs::path& other) {
  return renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

FolderInTheMaking::FolderInTheMaking(const fs::path& target) : target_(target_of(target)) {
  check_may_be_replaced(target_, target_);
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

FolderInTheMaking::~FolderInTheMaking() {
  if (!path_.empty()) remove_or_warn(path_);
}

void FolderInTheMaking::commit() {
  sync_folder(path_);
  const auto obsolete = siblings(target_, kOlder);  // when this one has its name; not what comes later
  const auto replaced = put_in_place();
  try {
    check_may_be_replaced(replaced, target_);  // somebody may have made it since
    sync_folder(target_.parent_path());
  } catch (const IoError& error) {
    put_back(replaced);  // who is told that saving failed finds what was there before
    if (!is_locked_one(lock_, target_)) throw;
    path_.clear();  // nothing is removed
    return log_warning(target_.string() + " is complete, but may not survive a power cut: " + error.what());
  }
  if (!replaced.empty()) remove_or_warn(replaced);
  for (const auto& folder : obsolete) remove_or_warn(folder);
}

// Returns where what had the name is now; nothing if there was nothing. Writers who meet here take turns.
fs::path FolderInTheMaking::put_in_place() {
  for (int round = 0; round < kRounds; ++round) {
    replaced_lock_ = lock_for_use(target_);
    if (rename(path_.c_str(), target_.c_str()) == 0) return {};
    if (!was_taken(errno)) refuse(target_, "renamed to its place", errno);
    if (exchange(path_, target_)) return kept(path_);
    const bool cannot_exchange = errno == EINVAL || errno == ENOSYS;
    if (!cannot_exchange && errno != ENOENT) refuse(target_, "renamed to its place", errno);
    if (!cannot_exchange) continue;
    if (const auto aside = move_aside_and_follow(); !aside.empty()) return kept(aside);
  }
  refuse(target_, "renamed to its place", EBUSY);
}

// `replaced`, which nobody removes now: between lock and rename another folder may have got the name.
fs::path FolderInTheMaking::kept(const fs::path& replaced) {
  if (!is_locked_one(replaced_lock_, replaced)) replaced_lock_ = lock_for_use(replaced);
  return replaced;
}

// The two renames where there is no exchange. Empty when somebody else came first.
fs::path FolderInTheMaking::move_aside_and_follow() const {
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

void FolderInTheMaking::put_back(const fs::path& replaced) {
  const bool is_whole = replaced.empty() || is_locked_one(replaced_lock_, replaced);
  if (!is_whole || !is_locked_one(lock_, target_)) return;  // somebody else's has the name by now
  if (replaced == path_) {
    (void)exchange(path_, target_);
  } else if (rename(target_.c_str(), path_.c_str()) == 0 && !replaced.empty()) {
    (void)rename(replaced.c_str(), target_.c_str());
  }
}

}  // namespace lockstep::detail
