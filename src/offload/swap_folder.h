// The folder of one process for files that live no longer than it does.
//
// In a directory that the user names, every process has a folder of its own, so that several jobs can name
// the same one. It is called lockstep-swap_JOB_rankR_XXXXXX@HOST and is locked (flock) as long as its process
// lives. It is removed when this object goes, and at exit(); what a killed process left is removed by the
// next one that begins in that directory on the same machine, which finds its lock free.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::offload {

struct SwapFolderOptions {
  std::filesystem::path directory;   ///< must be there
  std::string job = {};              ///< for the folder's name; default: the process id
  int rank = 0;                      ///< for the folder's name, and errors
  std::string option = "nvme_path";  ///< by which users name the directory; for errors
};

/// Owns the folder.
class LOCKSTEP_API SwapFolder {
 public:
  /// Makes it, and removes those of processes that are no more. Blocking.
  /// @throws ConfigError naming option, directory and rank when that is no directory, or not one that can be
  /// written to
  explicit SwapFolder(const SwapFolderOptions& options);
  SwapFolder(SwapFolder&&) noexcept;
  SwapFolder& operator=(SwapFolder&&) noexcept;
  /// Removes the folder with all in it; what cannot be removed is logged. In a forked child: nothing.
  ~SwapFolder();

  const std::filesystem::path& path() const;
  const SwapFolderOptions& options() const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
};

}  // namespace lockstep::offload
