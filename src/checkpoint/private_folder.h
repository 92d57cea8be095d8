// Folders that are this user's alone, in places where anybody may make some, such as /dev/shm: those of
// local checkpoints.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace lockstep::detail {

/// What others may not do with a folder.
inline constexpr mode_t kNobodyElse = 077;        ///< nothing at all
inline constexpr mode_t kNobodyElseWrites = 022;  ///< change what is in it

/// Makes `folder` with mode 0700, unless it is there; the folder above must be. @throws IoError where it
/// cannot be made; ConfigError where what has the name is a link, no folder, another user's, or others may do
/// `forbidden`
void make_private_folder(const std::filesystem::path& folder, mode_t forbidden = kNobodyElse);

/// Whether `folder` is there, and such a one.
bool is_private_folder(const std::filesystem::path& folder);

}  // namespace lockstep::detail
