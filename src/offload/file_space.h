// Room on disk: where users want it, got before it is needed, and its size in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// `1610612736 bytes (1.5 GiB)`; below a KiB only bytes.
inline std::string byte_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto text = std::to_string(bytes) + " bytes";
  if (bytes < 1024) return text;
  double number = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; number >= 1024; ++unit) number /= 1024;
  char in_units[32];
  std::snprintf(in_units, sizeof in_units, " (%.1f %s)", number, kUnits[unit]);
  return text + in_units;
}

/// Bytes that an ordinary user may still write to the file system of `path`; nothing where that cannot be
/// found out, as on some file systems of users.
LOCKSTEP_API std::optional<std::uint64_t> free_bytes(const std::filesystem::path& path);

/// Whether what lies there takes memory: a tmpfs, or the like.
LOCKSTEP_API bool is_in_memory(const std::filesystem::path& path);

/// What is about to be written to a file system.
struct RoomRequest {
  std::uint64_t bytes;
  std::string what;
};

/// @throws IoError with the bytes that are needed and those that are free, if these are fewer
LOCKSTEP_API void check_room(const std::filesystem::path& directory, const RoomRequest& wanted);

/// Gives the file `fd` of that path `bytes` bytes on disk, so that no write to them can find the disk full.
/// Blocking. `owner` is named in errors.
/// @throws IoError with the bytes that are needed and those that are free, or that files may have
void allocate_file(int fd, const std::filesystem::path& path, std::uint64_t bytes, const std::string& owner);

/// That of temporary files (TMPDIR, /tmp). @throws ConfigError naming `option`, by which users name another
LOCKSTEP_API std::filesystem::path temporary_directory(const std::string& option);

/// Warns of a `directory` that lies in memory.
LOCKSTEP_API void warn_of_tmpfs(const std::filesystem::path& directory, const std::string& option);

}  // namespace lockstep::offload
