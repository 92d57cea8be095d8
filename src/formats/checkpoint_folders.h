// The folders in which checkpoints are, and those beside them while they are written.
//
// A checkpoint as DeepSpeed writes it is in a folder named by its tag, beside a file `latest` with the tag of
// the newest one. While a checkpoint is written, .NAME.HOST-NUMBER.draft is the next one, and
// .NAME.HOST-NUMBER.old the one before, where the file system cannot let them trade places. Each has a unique
// name, so that concurrent writers of one checkpoint use different folders. HOST is a number for the machine
// that created it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

inline constexpr auto kLatestName = "latest";
inline constexpr auto kManifestName = "manifest.json";  ///< of a checkpoint, in its folder

/// Whether `tag` can be the name of a folder beside `latest`. A tag with blanks at an end cannot, since
/// readers of `latest` strip them.
LOCKSTEP_API bool is_tag(std::string_view tag);

/// The tag in `folder`/latest; nothing where there is no such file.
/// @throws IoError when it cannot be read; CheckpointError when it is no tag
LOCKSTEP_API std::optional<std::string> latest_tag(const std::filesystem::path& folder);

/// The checkpoint that `folder` means: the one of that tag, if any is given; else the one that
/// `folder`/latest names; else `folder`, also where `latest` was left over in a folder that has weights
/// itself (manifest.json, model.safetensors or its index). A checkpoint that was moved aside for a
/// replacement that was never completed is found, too.
/// @throws as latest_tag(); ConfigError for an empty `folder` and for a `tag` that is none; CheckpointError
///   when it is not there
LOCKSTEP_API std::filesystem::path tagged_folder(const std::filesystem::path& folder,
                                                 const std::string& tag = {});

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
