// Files that are complete or absent: written to a temporary file, synced, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep {

/// Takes the bytes of a file that write_file_atomically is writing, in order.
class LOCKSTEP_API FileWriter {
 public:
  /// Appends `bytes`. Blocking.
  /// @throws IoError with the system's reason (disk full, quota, ...)
  void write(std::span<const std::byte> bytes);
  /// The same for a text.
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

 private:
  friend LOCKSTEP_API void write_file_atomically(const std::filesystem::path&,
                                                 const std::function<void(FileWriter&)>&);
  FileWriter(int fd, const std::filesystem::path& target) : fd_(fd), target_(target) {}

  void hand_over();

  int fd_;
  const std::filesystem::path& target_;
  std::int64_t written_ = 0;
  std::int64_t handed_over_ = 0;
};

/// Writes the file `path` so that, whatever happens, it holds its old content or all of what `fill`
/// writes: a temporary file in the same folder, fsync, rename, fsync of the folder. Blocking. The
/// temporary file is gone afterwards, also when an error ends the writing.
/// @throws IoError with file and system reason; what `fill` throws
LOCKSTEP_API void write_file_atomically(const std::filesystem::path& path,
                                        const std::function<void(FileWriter&)>& fill);
/// Writes a whole file so that nobody ever sees a part of it: under another name first, then renamed.
/// @throws IoError
LOCKSTEP_API void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
/// The same for a text.
LOCKSTEP_API void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// Makes renames and new names in `folder` survive a power cut. Blocking.
/// @throws IoError with folder and system reason
LOCKSTEP_API void sync_folder(const std::filesystem::path& folder);

/// Makes `folder` and those above it that are not there, so that they survive a power cut. Blocking.
/// @throws IoError with folder and system reason
LOCKSTEP_API void create_folders(const std::filesystem::path& folder);

}  // namespace lockstep
