// The folders that stand beside a checkpoint while it is written: .NAME.HOST-NUMBER.draft is the next one,
// and .NAME.HOST-NUMBER.old the one before, where the file system cannot let them trade places.
//
// Each has a unique name, so that concurrent writers of one checkpoint use different folders. HOST is a
// number for the machine that created it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

inline constexpr std::string_view kDraft = "draft";
inline constexpr std::string_view kOlder = "old";

/// Refuses the empty name, which would mean the current folder.
/// @throws ConfigError
LOCKSTEP_API void require_name(const std::filesystem::path& checkpoint);

/// `folder` without a slash at its end.
LOCKSTEP_API std::filesystem::path without_slash(const std::filesystem::path& folder);

/// A random new name for a sibling of that kind.
LOCKSTEP_API std::filesystem::path new_sibling(const std::filesystem::path& checkpoint,
                                               std::string_view kind);

/// The existing siblings of that kind.
LOCKSTEP_API std::vector<std::filesystem::path> siblings(const std::filesystem::path& checkpoint,
                                                         std::string_view kind);

/// The checkpoint whose sibling of that kind `path` is; empty where it is none.
LOCKSTEP_API std::filesystem::path checkpoint_of(const std::filesystem::path& path, std::string_view kind);

/// Whether this machine has created `sibling`.
LOCKSTEP_API bool is_of_this_host(const std::filesystem::path& sibling);

/// The newest complete checkpoint that was moved aside; empty when there is none.
LOCKSTEP_API std::filesystem::path newest_older(const std::filesystem::path& checkpoint);

/// The place of the checkpoint called `folder`: that path, or the place to which it was moved aside if the
/// process that was replacing it was killed.
LOCKSTEP_API std::filesystem::path place_of_checkpoint(const std::filesystem::path& folder);

}  // namespace lockstep::detail
