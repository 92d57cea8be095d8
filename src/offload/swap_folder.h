// The folder of one process for files that live no longer than it does, and the room on its disk.
//
// In a directory that the user names, every process has its own folder, so that several jobs can use the same
// directory. It is called lockstep-swap_JOB_rankR_XXXXXX@HOST and is locked (flock) as long as its process
// lives. It is removed when this object is destroyed, and at exit(); the folder of a killed process is
// removed by the next process that starts in that directory on the same machine, which finds its lock free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/base/export.h>

#include "base/number_locale.h"

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
  /// Creates the folder, and removes those of processes that have ended. Blocking.
  /// @throws ConfigError naming option, directory and rank when that is no directory, or not one that can be
  /// written to
  explicit SwapFolder(const SwapFolderOptions& options);
  SwapFolder(SwapFolder&&) noexcept;
  SwapFolder& operator=(SwapFolder&&) noexcept;
  /// Removes the folder with its content, and logs what cannot be removed. Does nothing in a forked child.
  ~SwapFolder();

  const std::filesystem::path& path() const;
  const SwapFolderOptions& options() const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
};

/// `1610612736 bytes (1.5 GiB)`; below a KiB only bytes.
inline std::string byte_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto text = std::to_string(bytes) + " bytes";
  if (bytes < 1024) return text;
  double number = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; number >= 1024; ++unit) number /= 1024;
  char in_units[32];
  const lockstep::detail::NumbersWithPoint scope;
  std::snprintf(in_units, sizeof in_units, " (%.1f %s)", number, kUnits[unit]);
  return text + in_units;
}

/// Bytes that an ordinary user may still write to the file system of `path`; nothing where that cannot be
/// found out, as on some file systems of users.
LOCKSTEP_API std::optional<std::uint64_t> free_bytes(const std::filesystem::path& path);

/// Whether files at `path` take memory: on a tmpfs, or the like.
LOCKSTEP_API bool is_in_memory(const std::filesystem::path& path);

/// The space that is about to be written to a file system.
struct RoomRequest {
  std::uint64_t bytes;
  std::string what;
};

/// @throws IoError with the bytes that are needed and those that are free, if these are fewer
LOCKSTEP_API void check_room(const std::filesystem::path& directory, const RoomRequest& wanted);

/// Allocates `bytes` bytes on disk for the file `fd` of that path, so that no write to them can fail for lack
/// of space. Blocking. `owner` is named in errors.
/// @throws IoError with the bytes that are needed and those that are free, or that files may have
void allocate_file(int fd, const std::filesystem::path& path, std::uint64_t bytes, const std::string& owner);

/// The directory of temporary files (TMPDIR, /tmp). @throws ConfigError naming `option`, by which users name
/// another one
LOCKSTEP_API std::filesystem::path temporary_directory(const std::string& option);

/// Warns of a `directory` that lies in memory.
LOCKSTEP_API void warn_of_tmpfs(const std::filesystem::path& directory, const std::string& option);

}  // namespace lockstep::offload
