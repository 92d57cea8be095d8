#include "checkpoint/folder_in_the_making.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>

#include "formats/checkpoint_manifest.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& folder, const char* what) {
  throw IoError("checkpoint", {.what = folder.string() + " cannot be " + what,
                               .expected = "",
                               .got = std::error_code(errno, std::generic_category()).message(),
                               .where = "",
                               .hint = ""});
}

bool may_be_replaced(const fs::path& target) {
  const auto status = fs::symlink_status(target);
  if (!fs::exists(status)) return true;
  return fs::is_directory(status) && (fs::is_empty(target) || fs::exists(target / kManifestName));
}

// The name without a slash at its end. What stands there is removed in the end: that may only be a checkpoint.
fs::path target_of(const fs::path& folder) {
  const auto target = folder.has_filename() ? fs::absolute(folder) : fs::absolute(folder).parent_path();
  if (may_be_replaced(target)) return target;
  throw IoError("checkpoint", {.what = "checkpoint " + target.string() + " cannot be written",
                               .expected = "a checkpoint, an empty folder, or nothing of that name",
                               .got = "something else"});
}

// Trades places with an older folder in one step, where the file system can (NFS, for one, cannot).
bool exchange(const fs::path& draft, const fs::path& target) {
  if (renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOENT) refuse(target, "renamed to its place");
  return false;
}

}  // namespace

fs::path FolderInTheMaking::path_of(const fs::path& folder) {
  const auto target = target_of(folder);
  return target.parent_path() / ("." + target.filename().string() + ".draft");
}

FolderInTheMaking::FolderInTheMaking(const fs::path& folder)
    : target_(target_of(folder)), path_(path_of(folder)) {
  std::error_code failure;
  fs::remove_all(path_, failure);  // of a run that was killed
  if (!fs::create_directory(path_, failure)) {
    errno = failure.value();
    refuse(target_, "created");
  }
}

FolderInTheMaking::~FolderInTheMaking() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

// After the exchange the draft's name holds the older folder, which the destructor removes.
void FolderInTheMaking::commit() {
  sync_folder(path_);
  if (exchange(path_, target_)) return sync_or([&] { exchange(path_, target_); });
  const auto aside = path_.string() + ".old";
  const bool replaces = fs::exists(target_);
  if (replaces) fs::rename(target_, aside);
  if (rename(path_.c_str(), target_.c_str()) != 0) {
    const int failure = errno;
    if (replaces) fs::rename(aside, target_);
    errno = failure;
    refuse(target_, "renamed to its place");
  }
  sync_or([&] {
    fs::rename(target_, path_);
    if (replaces) fs::rename(aside, target_);
  });
  if (replaces) fs::remove_all(aside);
}

// Who is told that saving failed finds what was there before.
void FolderInTheMaking::sync_or(const std::function<void()>& undo) {
  try {
    sync_folder(target_.parent_path());
  } catch (const IoError&) {
    undo();
    throw;
  }
}

}  // namespace lockstep::detail
