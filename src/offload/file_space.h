// Room on disk for a file, got before it is needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::offload {

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

}  // namespace lockstep::offload
