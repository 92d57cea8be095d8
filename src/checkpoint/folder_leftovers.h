// What saves leave beside a checkpoint when they are killed.
#pragma once

#include <filesystem>

namespace lockstep::detail {

/// Removes `folder` with all in it; what cannot be removed is logged.
void remove_or_warn(const std::filesystem::path& folder);

/// Removes the drafts of `checkpoint` whose writers are no more: on this machine, where the lock tells, at
/// once; on others when nothing in them was changed for a day.
void remove_drafts(const std::filesystem::path& checkpoint);

/// Gives the checkpoint that was moved aside its name again, if nothing has it, and who moved it is no more.
void restore_older(const std::filesystem::path& checkpoint);

}  // namespace lockstep::detail
