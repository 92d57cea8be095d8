// Folders with several checkpoints as DeepSpeed writes them: each in a folder named by its tag, beside a file
// `latest` with the tag of the newest one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

inline constexpr auto kLatestName = "latest";

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

}  // namespace lockstep::detail
