// What happens to older checkpoints when a new one is complete.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Removes the checkpoint `folder`, its manifest first, so that at no moment it looks complete and is not.
/// What is no checkpoint is left alone; what cannot be removed is logged.
LOCKSTEP_API void remove_checkpoint(const std::filesystem::path& folder);

/// Makes `link`, or what has that name if it is a link, a relative symbolic link to `target`, in one step. An
/// older checkpoint of that name gives way.
/// @throws IoError
LOCKSTEP_API void link_checkpoint(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace lockstep::detail
