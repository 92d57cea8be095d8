// The folder of a checkpoint: while it is written, what killed saves leave beside it, and its removal.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::detail {

/// A folder that is renamed to its place when complete, and removed when something fails before. A folder of
/// the target's name is complete, or the one that was there before. Where the file system cannot let two
/// folders trade places (NFS), the older one is moved aside first; there readers find it until the new one
/// has its name (checkpoint_siblings.h).
///
/// Several may be in the making for one target, by any processes: each has a name of its own, and the last
/// that is complete stays. What saves left that were killed is removed here.
class LOCKSTEP_API StagingDirectory {
 public:
  /// Makes the folders above, too. @throws IoError, also when something else than a checkpoint has the name
  explicit StagingDirectory(const std::filesystem::path& target);
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  /// Where to write for now: beside the target.
  const std::filesystem::path& path() const { return path_; }

  /// Makes it durable and puts it in its place. @throws IoError
  void commit();

 private:
  std::filesystem::path put_in_place();
  std::filesystem::path move_aside_and_follow() const;
  std::filesystem::path kept(const std::filesystem::path& replaced);
  void put_back(const std::filesystem::path& replaced);

  std::filesystem::path target_;
  std::filesystem::path path_;
  UniqueFd lock_;           // of the folder, wherever it is
  UniqueFd replaced_lock_;  // of what had the name
};

/// Removes `folder` with all in it; what cannot be removed is logged.
void remove_or_warn(const std::filesystem::path& folder);

/// Removes the drafts of `checkpoint` whose writers are no more: on this machine, where the lock tells, at
/// once; on others when nothing in them was changed for a day.
void remove_drafts(const std::filesystem::path& checkpoint);

/// Gives the checkpoint that was moved aside its name again, if nothing has it, and who moved it is no more.
void restore_older(const std::filesystem::path& checkpoint);

/// Removes the checkpoint `folder`, its manifest first, so that at no moment it looks complete and is not.
/// What is no checkpoint is left alone; what cannot be removed is logged.
LOCKSTEP_API void remove_checkpoint(const std::filesystem::path& folder);

/// Makes `link`, or what has that name if it is a link, a relative symbolic link to `target`, in one step. An
/// older checkpoint of that name gives way.
/// @throws IoError
LOCKSTEP_API void link_checkpoint(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace lockstep::detail
