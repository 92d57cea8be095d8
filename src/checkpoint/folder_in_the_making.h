// A checkpoint while it is written.
#pragma once

#include <filesystem>
#include <functional>

namespace lockstep::detail {

/// A folder that is renamed to its place when complete, and removed when something fails before. A folder
/// of the target's name is complete or the one that was there before (on file systems without an atomic
/// exchange, such as NFS, the older one is for a moment called .NAME.draft.old).
class FolderInTheMaking {
 public:
  /// @throws IoError, also when something that is no folder has the name
  explicit FolderInTheMaking(const std::filesystem::path& folder);
  ~FolderInTheMaking();
  FolderInTheMaking(const FolderInTheMaking&) = delete;
  FolderInTheMaking& operator=(const FolderInTheMaking&) = delete;

  /// Where the one of `folder` lies, for those who did not make it.
  static std::filesystem::path path_of(const std::filesystem::path& folder);

  /// Where to write for now.
  const std::filesystem::path& path() const { return path_; }

  /// Makes it durable and puts it in its place. @throws IoError
  void commit();

 private:
  void sync_or(const std::function<void()>& undo);

  std::filesystem::path target_;
  std::filesystem::path path_;
};

}  // namespace lockstep::detail
