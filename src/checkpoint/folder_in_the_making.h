// A checkpoint while it is written.
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
class LOCKSTEP_API FolderInTheMaking {
 public:
  /// Makes the folders above, too. @throws IoError, also when something else than a checkpoint has the name
  explicit FolderInTheMaking(const std::filesystem::path& target);
  ~FolderInTheMaking();
  FolderInTheMaking(const FolderInTheMaking&) = delete;
  FolderInTheMaking& operator=(const FolderInTheMaking&) = delete;

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

}  // namespace lockstep::detail
