// The folder of a checkpoint while it is written, the drafts that killed processes leave beside it, and its
// removal.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::detail {

/// A folder that is renamed to its target when complete, and removed when something fails before. A folder
/// with the target's name is the complete new one, or the previous one. Where the file system cannot exchange
/// the names of two folders (NFS), the previous one is moved aside first; readers find it there until the new
/// one has its name (formats/checkpoint_folders.h).
///
/// Several processes may write to one target at once: each folder has a unique name, and the last one that is
/// complete stays. Drafts of killed processes are removed here.
class LOCKSTEP_API StagingDirectory {
 public:
  /// Creates the folders above `target`, too. @throws IoError, also when something other than a checkpoint
  /// has the name
  explicit StagingDirectory(const std::filesystem::path& target);
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  /// The folder to write to, beside the target.
  const std::filesystem::path& path() const { return path_; }

  /// Makes the folder durable and gives it the name of the target. @throws IoError
  void commit();

 private:
  std::filesystem::path put_in_place();
  std::filesystem::path move_aside_and_follow() const;
  std::filesystem::path locked_in_place(const std::filesystem::path& replaced);
  void put_back(const std::filesystem::path& replaced);

  std::filesystem::path target_;
  std::filesystem::path path_;
  UniqueFd lock_;           // of the folder, under any name
  UniqueFd replaced_lock_;  // of the folder that had the name before
};

/// For before a run: whether a checkpoint may take the name `target`. @throws IoError when something other
/// than a checkpoint has it
void check_may_be_saved_to(const std::filesystem::path& target);

/// Removes `folder` with its content; logs what cannot be removed.
void remove_or_warn(const std::filesystem::path& folder);

/// Removes the drafts of `checkpoint` whose writers have ended: those of this machine, whose locks show it,
/// at once; those of others when nothing in them was changed for a day.
void remove_drafts(const std::filesystem::path& checkpoint);

/// Gives a checkpoint that was moved aside its name again, if nothing has that name and the process that
/// moved it has ended.
void restore_older(const std::filesystem::path& checkpoint);

/// Removes the checkpoint `folder`, its manifest first, so that it never looks complete without being so. A
/// folder that is no checkpoint is left alone; logs what cannot be removed.
LOCKSTEP_API void remove_checkpoint(const std::filesystem::path& folder);

/// Creates or replaces the symbolic link `link`, relative, to `target`, in one step. A checkpoint of that
/// name is removed.
/// @throws IoError
LOCKSTEP_API void link_checkpoint(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace lockstep::detail
