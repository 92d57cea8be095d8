// Room on disk for a file, got before it is needed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// Bytes that an ordinary user may still write to the file system of `path`; 0 where that cannot be found
/// out.
LOCKSTEP_API std::uint64_t free_bytes(const std::filesystem::path& path);

/// Gives the file `fd` of that path `bytes` bytes on disk, so that no write to them can find the disk full.
/// Blocking. `owner` is named in errors.
/// @throws IoError with the bytes that are needed and those that are free, or that files may have
void allocate_file(int fd, const std::filesystem::path& path, std::uint64_t bytes, const std::string& owner);

}  // namespace lockstep::offload
